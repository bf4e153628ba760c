"""PyTorch's scaled_dot_product_attention as documented, folded, or by its math backend.

Plain: is_causal where Lq = Lk, a mask otherwise, enable_gqa for grouped heads. Derivatives are
those of the plain call (torch_derivatives.py). With --math that runs under SDPBackend.MATH, which
materialises the weights and alone has forward mode and second derivatives. With --fold the
query heads of one kv head become query rows of it, by a view: no rule of attention changes, and K
and V are walked once per group. It needs a mask of its own when causal, so it is offered at few
queries, where that mask is small.
Must not happen here: sdpa_kernel() forcing a backend without --math; PyTorch picks.
"""

import contextlib
import sys

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
import torch

import protocol
from contestants import torch_derivatives, torch_tensors

_BACKENDS = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn", 4: "overrideable"}
# Query rows up to which folding is offered.
_FOLD_ROWS = 16


def _picked():
    """PyTorch's own choice of backend."""
    return contextlib.nullcontext()


def _math():
    return sdpa_kernel(SDPBackend.MATH)


def _load(fields, path, threads, backend_context):
    shape, (query, key, value), lengths = torch_tensors.load(fields, path, threads)
    square_causal = shape.causal and shape.q_len == shape.kv_len and not shape.window
    mask = None if square_causal else torch_tensors.additive_mask(shape, lengths)
    options = {"attn_mask": mask, "is_causal": square_causal, "enable_gqa": shape.group > 1}
    with backend_context():
        backend = torch._fused_sdp_choice(query, key, value, dropout_p=0.0, **options)
    ran = f"{_BACKENDS.get(backend, backend)} backend" + (", additive mask" if mask is not None
                                                          else "")

    def attention(query, key, value):
        with backend_context():
            return scaled_dot_product_attention(query, key, value, **options)

    if shape.work != "forward":
        return torch_derivatives.prepare(shape, path, attention, ran)
    result = []

    def call():
        result[:] = [scaled_dot_product_attention(query, key, value, **options)]

    return protocol.Prepared(call, lambda: torch_tensors.to_array(result[0]), ran)


def _plain(fields, path, threads):
    return _load(fields, path, threads, _picked)


def _by_math(fields, path, threads):
    return _load(fields, path, threads, _math)


def _folded(fields, path, threads):
    shape, (query, key, value), lengths = torch_tensors.load(fields, path, threads)
    if shape.group == 1:
        raise protocol.CannotExpress("every query head has a kv head of its own: nothing to fold")
    if shape.q_len > _FOLD_ROWS:
        raise protocol.CannotExpress(f"offered up to {_FOLD_ROWS} queries, where the mask it needs "
                                     "is small beside the keys")
    mask = torch_tensors.additive_mask(shape, lengths)
    query, mask = torch_tensors.fold(shape, query, mask)
    backend = torch._fused_sdp_choice(query, key, value, attn_mask=mask)
    result = []

    def call():
        result[:] = [scaled_dot_product_attention(query, key, value, attn_mask=mask)]

    def output():
        return torch_tensors.to_array(torch_tensors.unfold(shape, result[0]))

    return protocol.Prepared(call, output, f"{_BACKENDS.get(backend, backend)} backend")


if __name__ == "__main__":
    way = {"--fold": _folded, "--math": _by_math}.get(sys.argv[-1], _plain)
    protocol.serve(torch_tensors.VERSIONS, way)
