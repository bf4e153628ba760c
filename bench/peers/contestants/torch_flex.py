"""PyTorch's FlexAttention, compiled by Inductor, with a block mask for the window.

Every shape is compiled for itself, about a minute each, so it runs where scaled_dot_product_-
attention has no kernel that skips what the mask hides: windows.
Must not happen here: the uncompiled form, which materialises the scores.
"""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import protocol
from contestants import torch_tensors


def _load(fields, path, threads):
    shape, (query, key, value), _ = torch_tensors.load(fields, path, threads)
    if not shape.window:
        raise protocol.CannotExpress("run for windows only: compiling takes a minute a shape")
    diagonal, window = shape.kv_len - shape.q_len, shape.window

    def visible(_b, _h, i, j):
        return (j <= i + diagonal) & (j > i + diagonal - window)

    blocks = create_block_mask(visible, None, None, shape.q_len, shape.kv_len, device="cpu")
    compiled = torch.compile(flex_attention)
    options = {"block_mask": blocks, "enable_gqa": shape.group > 1}
    result = []

    def call():
        result[:] = [compiled(query, key, value, **options)]

    call()  # compiles
    return protocol.Prepared(call, lambda: torch_tensors.to_array(result[0]),
                             "Inductor C++, block mask")


if __name__ == "__main__":
    protocol.serve(torch_tensors.VERSIONS, _load)
