"""oneDNN Graph's attention partition, reached through PyTorch's TorchScript fuser.

scaled_dot_product_attention does not call oneDNN in float32, so the plain formula (matmul, scale,
mask, softmax, matmul) is traced with enable_onednn_fusion and frozen: oneDNN then takes the whole
chain as one partition (ONEDNN_VERBOSE=1 calls it sdp). Causal is an additive mask in this form.
Must not happen here: falling back unseen; what the optimised graph holds is what is reported.
"""

import torch

import protocol
from contestants import torch_tensors

# The first call is profiled, the second compiled.
_WARM_CALLS = 2


class _Attention(torch.nn.Module):
    def __init__(self, scale_divisor):
        super().__init__()
        self.scale_divisor = scale_divisor

    def forward(self, query, key, value):
        scores = torch.matmul(query, key.transpose(-1, -2)) / self.scale_divisor
        return torch.matmul(torch.softmax(scores, -1), value)


class _Masked(_Attention):
    def forward(self, query, key, value, mask):
        scores = torch.matmul(query, key.transpose(-1, -2)) / self.scale_divisor + mask
        return torch.matmul(torch.softmax(scores, -1), value)


def _load(fields, path, threads):
    shape, tensors, lengths = torch_tensors.load(fields, path, threads)
    mask = torch_tensors.additive_mask(shape, lengths)
    # The fuser takes no fifth axis, so a group's heads become query rows, which copies nothing.
    tensors[0], mask = torch_tensors.fold(shape, tensors[0], mask)
    if mask is not None:
        tensors.append(mask)
    module = (_Attention if mask is None else _Masked)(float(shape.head_dim) ** 0.5).eval()
    # The check of trace() would run everything three more times; the driver checks the result.
    compiled = torch.jit.freeze(torch.jit.trace(module, tuple(tensors), check_trace=False))
    for _ in range(_WARM_CALLS):
        compiled(*tensors)
    graph = str(torch.jit.last_executed_optimized_graph())
    groups = graph.count("= graph(")
    left = graph.split("with prim::oneDNNFusionGroup")[0]
    outside = [name for name in ("aten::matmul(", "aten::softmax(") if name in left]
    if not groups:
        raise protocol.CannotExpress("the fuser gave oneDNN no part of this graph")
    ran = "one partition" if not outside else "partly: " + ", ".join(x[:-1] for x in outside) + (
        " left to PyTorch")
    result = []

    def call():
        result[:] = [compiled(*tensors)]

    def output():
        return torch_tensors.to_array(torch_tensors.unfold(shape, result[0]))

    return protocol.Prepared(call, output, ran + (", additive mask" if mask is not None else ""))


if __name__ == "__main__":
    torch.jit.enable_onednn_fusion(True)
    protocol.serve(torch_tensors.VERSIONS, _load)
