"""What a call through torch costs beside empty operators, in one process; also a program.

In: empty batches, so that only the way there and back is timed. Out: microseconds of each way, the
best of many short rounds taken in turn. Must not happen here: an empty operator that is registered
otherwise than the one it stands beside.

python python/tests/torch_overhead.py prints the table of docs/python.md.
"""

import time

import torch

import poise
from poise import _torch_ops, torch as _ours  # noqa: F401  (registers torch.ops.poise)
from poise._torch_ops import TENSORS

ABSENT = (None,) * (TENSORS - 3)
NUMBERS = ("none", 0, None, 0.0, [], 0.0, 0, 0, False)
library = torch.library.Library("poise_empty", "DEF")
SDPA = ("(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, "
        "bool is_causal=False, *, float? scale=None, bool enable_gqa=False)")


def results(query):
    rows = query.shape[:-1]
    return query.new_empty(query.shape), query.new_empty(rows), query.new_empty(rows), \
        query.new_empty(0)


def gradients(tensors):
    return (*map(torch.empty_like, tensors[:3]), *(tensors[0].new_empty(0) for _ in range(4)))


for name, kernel in (("forward", lambda query, *rest: results(query)),
                     ("backward", lambda dout, dlse, *rest: gradients(rest))):
    library.define(name + _torch_ops._SCHEMAS[name])
    library.impl(name, kernel, "CPU")
library.define("sdpa" + SDPA + " -> Tensor")
library.impl("sdpa", lambda query, *rest, **options: torch.empty_like(query), "CPU")
EMPTY = torch.ops.poise_empty


class Empty(torch.autograd.Function):
    """Around the empty operators what poise has around its own."""

    @staticmethod
    def forward(ctx, *arguments):
        outputs = EMPTY.forward.default(*arguments)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*outputs[1:])
        ctx.save_for_backward(*arguments[:TENSORS], *outputs[:3])
        return outputs

    @staticmethod
    def backward(ctx, dout, *_):
        wanted = list(ctx.needs_input_grad[:7])
        found = EMPTY.backward.default(dout, None, *ctx.saved_tensors, *NUMBERS, wanted)
        return (*(g if w else None for g, w in zip(found, wanted)), *(None,) * 15)


def custom_operator():
    """poise's kernels as torch.library.custom_op with register_autograd: the other way."""
    forward, backward = (
        torch.library.custom_op(f"poise_custom::{name}", getattr(_torch_ops, name), mutates_args=(),
                                device_types="cpu", schema=_torch_ops._SCHEMAS[name])
        for name in ("forward", "backward"))

    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:TENSORS], *output[:3])
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[1:])

    def differentiate(ctx, dout, *_):
        wanted = list(ctx.needs_input_grad[:7])
        found = backward(dout, None, *ctx.saved_tensors, *NUMBERS, wanted)
        return (*(g if w else None for g, w in zip(found, wanted)), *(None,) * 15)

    forward.register_autograd(differentiate, setup_context=keep)
    return forward


def ways():
    """name: a call without arguments."""
    tensors = [torch.randn(0, 4, 16, 8) for _ in range(3)]
    learned = [t.clone().requires_grad_() for t in tensors]
    dout = torch.ones_like(tensors[0])
    custom = custom_operator()
    plain = (*ABSENT, *NUMBERS, False)
    sdpa, theirs = poise.scaled_dot_product_attention, torch.nn.functional

    def back(out):
        return torch.autograd.grad(out, learned, dout)

    return {
        "forward, empty operator": lambda: EMPTY.forward.default(*tensors, *plain),
        "forward, empty operator of F.sdpa's signature": lambda: EMPTY.sdpa(*tensors),
        "forward, torch.ops.poise.forward":
            lambda: torch.ops.poise.forward.default(*tensors, *plain),
        "forward, poise": lambda: sdpa(*tensors),
        "forward, F.sdpa": lambda: theirs.scaled_dot_product_attention(*tensors),
        "recorded, empty operator": lambda: Empty.apply(*learned, *plain),
        "recorded, custom_op with register_autograd": lambda: custom(*learned, *plain),
        "recorded, torch.ops.poise.forward":
            lambda: torch.ops.poise.forward.default(*learned, *plain),
        "recorded, poise": lambda: sdpa(*learned),
        "recorded, F.sdpa": lambda: theirs.scaled_dot_product_attention(*learned),
        "and backward, empty operator": lambda: back(Empty.apply(*learned, *plain)[0]),
        "and backward, custom_op with register_autograd":
            lambda: back(custom(*learned, *plain)[0]),
        "and backward, poise": lambda: back(sdpa(*learned)),
        "and backward, F.sdpa": lambda: back(theirs.scaled_dot_product_attention(*learned)),
    }


def measure(rounds=300, times=12):
    """Microseconds of each way."""
    calls = ways()
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.perf_counter_ns()
            for _ in range(times):
                call()
            best[name] = min(best[name], (time.perf_counter_ns() - begin) / times / 1000)
    return best


if __name__ == "__main__":
    torch.set_num_threads(1)
    for way, microseconds in measure().items():
        print(f"{microseconds:8.1f} us  {way}")
