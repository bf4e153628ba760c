"""From the arguments of attention, PyTorch's or the library's, to a call on torch tensors.

In: tensors and options. Out: whether somebody records or traces the call, and its result. Must not
happen here: arithmetic on elements, or a rule on arguments that the library has.
"""

import warnings
from typing import NamedTuple

import numpy
import torch
from torch import is_autocast_enabled
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from . import _core
from ._torch_autograd import Attention, EagerAttention, Measurement, traced

_forward_op = torch.ops.poise.forward.default
_AUX = ("lse", "lse_without_sink", "max_scores", "row_max", "row_sum", "scores", "capped", "logits",
        "weights", "stats")


class Call(NamedTuple):
    """One attention call: the options by the names of poise.Options; whether heads are grouped."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    options: dict
    grouped: bool


def native(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
           enable_gqa=False):
    """The call that torch.nn.functional.scaled_dot_product_attention means by these arguments.

    Dropout has no seed yet: run() draws it, and who only measures leaves dropout out.
    """
    options = {"attn_mask": attn_mask, "scale": scale, "dropout_p": dropout_p,
               "causal": "top_left" if is_causal else None}
    return Call(query, key, value, options, enable_gqa)


def draw_seed():
    """A seed from torch's generator, as an int64 tensor: a number would break a traced graph."""
    return torch.randint(0, 2**63 - 1, (), dtype=torch.int64, device="cpu")


def is_recorded(query, key, value, *others):
    """Whether the call must leave a trace: gradients, forward mode, transforms, torch.compile."""
    if is_compiling():
        return True
    if not (isinstance(key, torch.Tensor) and isinstance(value, torch.Tensor)):
        return False
    if torch.is_grad_enabled():
        if query.requires_grad or key.requires_grad or value.requires_grad:
            return True
        for other in others:
            if isinstance(other, torch.Tensor) and other.requires_grad:
                return True
    return (forward_ad._current_level >= 0 or traced()
            or torch._C._are_functorch_transforms_active())


def autocast(*tensors):
    """Tensors in autocast's dtype, as torch's own function has them there; float64 stays."""
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(
        t.to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point()
        and t.dtype != torch.float64 else t for t in tensors)


def _tensor(name, numbers, dtype=None):
    if numbers is None or isinstance(numbers, torch.Tensor):
        return numbers
    if not is_compiling():
        _core.Options(**{name: numbers})  # refuses what is no array and no list of numbers
    if isinstance(numbers, numpy.ndarray) and not is_compiling():
        return _tensor_of_numpy(numbers)
    return torch.as_tensor(numbers, dtype=None if hasattr(numbers, "dtype") else dtype)


def _tensor_of_numpy(array):
    """The array as a tensor to be read; a copy where torch has no view of its strides."""
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    is_bfloat16 = array.dtype.name == "bfloat16"  # of ml_dtypes
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensor = torch.from_numpy(array.view("uint16") if is_bfloat16 else array)
    return tensor.view(torch.bfloat16) if is_bfloat16 else tensor


def _seed(seed):
    if seed is None or isinstance(seed, torch.Tensor):
        return seed
    if not is_compiling():
        _core.Options(dropout_seed=seed)  # refuses what is no seed
    return torch.tensor(seed - 2**64 if seed >= 2**63 else seed, dtype=torch.int64)


def _causal(causal):
    if causal is None or causal is False:
        return "none", 0
    if isinstance(causal, str):
        return causal, 0
    if causal is True:
        _core.Options(causal=causal)  # raises
    return "offset", causal


def recorded(query, key, value, *, grouped, causal=None, scale=None, softcap=None, attn_mask=None,
             mask=None, bias=None, window=None, diagonal=None, kv_lengths=None, q_lengths=None,
             alibi_slopes=None, sinks=None, dropout_p=0.0, dropout_seed=None, dropout_offset=0,
             threads=None, out=None, lse=False, measurement=None):
    """The call with its place in torch's graph: (out, lse), lse empty unless asked for."""
    if out is not None:
        raise ValueError("[forward] out: given while gradients are recorded, which need a result "
                         "of their own; leave it out")
    if attn_mask is not None:
        attn_mask = _tensor("attn_mask", attn_mask)
        if (mask if attn_mask.dtype == torch.bool else bias) is not None:
            with torch.no_grad():
                _core.Options(attn_mask=attn_mask, mask=mask, bias=bias)  # raises
        if attn_mask.dtype == torch.bool:
            mask = attn_mask
        else:
            bias = attn_mask
    number = scale
    if scale is not None and not isinstance(scale, (int, float, torch.SymFloat, torch.SymInt)):
        number, scale = None, _tensor("scale", scale, torch.float64)
    else:
        scale = None
    if window is not None:
        if not is_compiling():
            _core.Options(window=window)  # refuses what is no pair of integers
        window = tuple(int(extent) for extent in window)
    if threads is not None and not is_compiling():
        _core.Options(threads=threads)  # refuses what is no number of threads
    causal, causal_offset = _causal(causal)
    arguments = (
        query, key, value, _tensor("bias", bias), scale, _tensor("sinks", sinks, torch.float64),
        _tensor("alibi_slopes", alibi_slopes, torch.float64), _tensor("mask", mask),
        _tensor("kv_lengths", kv_lengths), _tensor("q_lengths", q_lengths),
        _tensor("diagonal", diagonal), _seed(dropout_seed), causal, causal_offset, number,
        0.0 if softcap is None else softcap, () if window is None else window, dropout_p,
        dropout_offset, 0 if threads is None else threads, grouped, lse)
    if is_compiling() or traced():
        if measurement is not None:
            raise ValueError("[forward] return_aux: a traced call hands out lse only; "
                             "poise.torch.attention(..., return_lse=True)")
        results = _forward_op(*arguments)
    elif torch._C._are_functorch_transforms_active():
        results = Attention.apply(*arguments, measurement)
    else:
        results = EagerAttention.apply(*arguments, measurement)
    return results[0], results[3]


class RecordedAux:
    """poise.Aux of a recorded call: lse has gradients, all else is constant."""

    def __init__(self, request, aux, lse):
        for name in _AUX:
            setattr(self, name, getattr(aux, name))
        self.lse = lse if request.lse else None
        if not request.state:
            self.row_max = self.row_sum = None

    def __repr__(self):
        return f"Aux({', '.join(n for n in _AUX if getattr(self, n) is not None)})"


def attend(query, key, value, return_aux, **options):
    """recorded(), with the results that return_aux asks for."""
    if return_aux is None:
        return recorded(query, key, value, **options)[0]
    if not isinstance(return_aux, _core.AuxRequest):
        _core.forward(query.detach(), key.detach(), value.detach(), _core.Options(), return_aux)
    measurement = Measurement(return_aux)
    out, lse = recorded(query, key, value, lse=return_aux.lse, measurement=measurement, **options)
    return out, RecordedAux(return_aux, measurement.aux, lse)


def attend_in_layout(query, key, value, return_aux, blhd, **options):
    """attend() for poise.attention: grouped heads, in either layout."""
    if blhd:
        query, key, value = (t.transpose(-3, -2) if t.dim() > 2 else t for t in (query, key, value))
    result = attend(query, key, value, return_aux, grouped=True, **options)
    if not blhd:
        return result
    out, *aux = result if isinstance(result, tuple) else (result,)
    out = out.transpose(-3, -2) if out.dim() > 2 else out
    return (out, *aux) if aux else out


def run(call, measurement=None):
    """Computes a Call of native(); draws the seed of dropout, follows autocast.

    measurement: a Measurement, whose aux is then filled, also where nothing is recorded.
    """
    options, tensors = dict(call.options), call[:3]
    if is_autocast_enabled("cpu"):
        *tensors, options["attn_mask"] = autocast(*tensors, options["attn_mask"])
    if options["dropout_p"] != 0.0:
        options["dropout_seed"] = draw_seed()
    if is_recorded(*tensors, options["attn_mask"], options["scale"]):
        return recorded(*tensors, grouped=call.grouped, measurement=measurement, **options)[0]
    if "dropout_seed" in options:
        options["dropout_seed"] = int(options["dropout_seed"])
    request = None if measurement is None else measurement.request
    result = _core.forward(*tensors, _core.Options(**options), request, None, call.grouped)
    if measurement is None:
        return result
    out, measurement.aux = result
    return out
