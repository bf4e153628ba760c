"""Derivatives of a PyTorch attention: autograd for gradients, torch.func for forward mode.

In: a shape whose work is not forward, the file of its inputs, the attention to differentiate. Out:
a Prepared whose results are those of shapes.RESULTS, one after the other. What a work does not time
(shapes.py) is computed here once and its graph retained.
Must not happen here: a choice of backend; a gradient that is added to a .grad of the call before.
"""

import numpy as np
import torch

import problem
import protocol
from contestants import torch_tensors
from shapes import READS

_DIRECTIONS = ("direction_query", "direction_key", "direction_value")


def _backward(attention, inputs, dout, _):
    out = attention(*inputs)
    return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)


def _forward_backward(attention, inputs, dout, _):
    def call():
        out = attention(*inputs)
        return (out, *torch.autograd.grad(out, inputs, dout))

    return call


def _jvp(attention, inputs, _, directions):
    primals = tuple(tensor.detach() for tensor in inputs)

    def call():
        with torch.no_grad():
            return torch.func.jvp(attention, primals, directions)

    return call


def _first_gradient(attention, inputs, dout):
    out = attention(*inputs)
    return (out, *torch.autograd.grad(out, inputs, dout, create_graph=True))


def _double_backward(attention, inputs, dout, directions):
    dout.requires_grad_()
    gradients = _first_gradient(attention, inputs, dout)[1:]
    return lambda: torch.autograd.grad(gradients, (*inputs, dout), directions, retain_graph=True)


def _gradient_penalty(attention, inputs, dout, directions):
    dout.requires_grad_()

    def call():
        out, *gradients = _first_gradient(attention, inputs, dout)
        return (out, *gradients, *torch.autograd.grad(gradients, (*inputs, dout), directions))

    return call


_WAYS = {"backward": _backward, "forward_backward": _forward_backward, "jvp": _jvp,
         "double_backward": _double_backward, "gradient_penalty": _gradient_penalty}


def prepare(shape, path, attention, ran):
    """A Prepared for the work of the shape. attention(query, key, value) returns out."""
    arrays = problem.load(path)
    inputs = torch_tensors.named(arrays, shape, ("query", "key", "value"))
    more = dict(zip(READS[shape.work], torch_tensors.named(arrays, shape, READS[shape.work])))
    with torch.enable_grad():
        for tensor in inputs:
            tensor.requires_grad_()
        way = _WAYS[shape.work](attention, tuple(inputs), more.get("dout"),
                                tuple(more[name] for name in _DIRECTIONS if name in more))
    results = []

    def call():
        # The results of the call before are free for this one, as an output buffer would be.
        results.clear()
        with torch.enable_grad():
            results.extend(way())

    def output():
        return np.concatenate([torch_tensors.to_array(tensor.detach()).ravel()
                               for tensor in results])

    return protocol.Prepared(call, output, ran)
