"""Hugging Face transformers: attn_implementation="poise".

In: an import of this module, which registers the name. Out: models of transformers whose attention
poise computes, with padding, caches, windows, softcap, sinks and gradients. Must not happen here: a
mask that does not arrive, or an option of a model that is passed over in silence.

>>> import poise.hf
>>> from transformers import BertConfig, BertModel
>>> config = BertConfig(hidden_size=32, num_attention_heads=2, num_hidden_layers=1,
...                     intermediate_size=64, vocab_size=50)
>>> model = BertModel(config)
>>> model.set_attn_implementation("poise")
>>> model.config._attn_implementation
'poise'
"""

import sys
import warnings

import torch
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedModel,
    masking_utils,
)

from ._torch_use import attend

__all__ = ["attention", "mask"]

_refusals = {}  # by class of config: None, or why its models are not poise's


@torch.compiler.assume_constant_result
def _refusal(config_class):
    """Why models of these configs cannot be computed by poise, or None.

    transformers takes any registered name for any model, and makes its masks. Models that multiply
    matrices by themselves would add a mask of bools to their scores, as ones and zeros.
    """
    if config_class not in _refusals:
        models, classes = [], [PreTrainedModel]
        while classes:
            subclasses = classes.pop().__subclasses__()
            classes += subclasses
            models += [c for c in subclasses if c.config_class is config_class]
        files = [vars(sys.modules[m.__module__]) for m in models if m.__module__ in sys.modules]
        ask = any("ALL_ATTENTION_FUNCTIONS" in names for names in files)
        multiply = any("Attention" in name and isinstance(thing, type)
                       and issubclass(thing, torch.nn.Module) for names in files
                       for name, thing in names.items())
        _refusals[config_class] = None if ask or not multiply else (
            f"[hf] attn_implementation: {config_class.model_type} models compute attention by "
            'themselves and ask for no other; use "eager" or "sdpa"')
    return _refusals[config_class]


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
         mask_function=masking_utils.causal_mask_function, attention_mask=None,
         allow_is_bidirectional_skip=False, use_vmap=False, config=None, **rest):
    """The mask of a call: bool [B, 1, Lq, Lk], True = may attend; None where none is needed.

    As transformers' sdpa_mask, but for the key padding of an encoder, which is not spread over the
    queries: its rows are one row in memory.

    Raises ValueError for models that would not call attention() below, by their config.
    """
    if config is not None and (refusal := _refusal(type(config))) is not None:
        raise ValueError(refusal)
    if mask_is_padding(mask_function, attention_mask, use_vmap):
        padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        padding = padding[:, kv_offset:kv_offset + kv_length].bool()
        # A graph is to hold for every padding.
        if allow_is_bidirectional_skip and not torch.compiler.is_compiling() and padding.all():
            return None
        return padding[:, None, None, :].expand(batch_size, 1, q_length, kv_length)
    return masking_utils.sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
        kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
        allow_is_bidirectional_skip=allow_is_bidirectional_skip, use_vmap=use_vmap, **rest)


def mask_is_padding(mask_function, attention_mask, use_vmap):
    """Whether the keys that padding hides are all that the mask hides."""
    return (mask_function is masking_utils.bidirectional_mask_function and not use_vmap
            and attention_mask is not None and attention_mask.dim() == 2)


def attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None,
              is_causal=None, softcap=None, s_aux=None, position_bias=None, head_mask=None,
              **rest):
    """What transformers calls for a layer: [B, H, L, D] tensors in, ([B, L, H, Dv], None) out.

    attention_mask: what mask() made, or a 4-D mask of the user's, of bool or added floats. It has
    the sliding window in it. Without one, decoders are causal from the top left. Grouped key heads
    are read in place. Attention weights are not returned, as with "sdpa".

    Raises ValueError and TypeError as poise.scaled_dot_product_attention.
    """
    if head_mask is not None:
        raise ValueError("[hf] head_mask: poise has no factor on the weights of a head; use "
                         'attn_implementation="eager"')
    if rest.get("output_attentions") and not torch.compiler.is_compiling():
        warnings.warn('attn_implementation="poise" returns no attention weights: '
                      'output_attentions=True needs "eager"', stacklevel=2)
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    # One query is the last position of a cache, which sees all of it.
    is_causal = bool(is_causal) and attention_mask is None and query.shape[2] > 1
    bias = position_bias
    if bias is not None and attention_mask is not None and attention_mask.is_floating_point():
        bias, attention_mask = bias + attention_mask, None
    options = {"attn_mask": attention_mask, "dropout_p": dropout, "scale": scaling,
               "causal": "top_left" if is_causal else None, "softcap": softcap, "sinks": s_aux,
               "bias": bias}
    out = attend(query, key, value, options)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register("poise", attention)
AttentionMaskInterface.register("poise", mask)
