"""Recordings of attention calls, which `poise report` reads.

In: calls of _torch_calls by label. Out: a safetensors file with <label>.query, .key, .value, .mask
or .bias, and scale and causal in its metadata. Must not happen here: a file that is not whole, or
one that leaves out what changed the result.
"""

import json
import os

import torch

from ._watch_rows import without_repeats

_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16",
           torch.bfloat16: "BF16", torch.bool: "BOOL"}
_HAVE_A_PLACE = {"attn_mask", "scale", "causal", "dropout_p", "bias"}


def write_safetensors(path, tensors, metadata):
    """Writes {name: tensor} and {name: text}, the metadata by key, and the file in one move."""
    header, end, tensors = {"__metadata__": dict(sorted(metadata.items()))}, 0, {
        name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data stays aligned to 8 bytes
    part = f"{path}.part"
    try:
        with open(part, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for tensor in tensors.values():
                file.write(tensor.flatten().view(torch.uint8).numpy().tobytes())
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)


class Recording:
    """Calls of one step, and the file they go to."""

    def __init__(self, path):
        # Where a link leads, since the file comes in one move. What would fail then is told now.
        self._path = os.path.realpath(os.fspath(path))
        folder = os.path.dirname(self._path)
        if not os.path.isdir(folder):
            raise ValueError(f"[watch] path: {path!r}, the folder {folder} does not exist")
        if os.path.exists(self._path) and not os.path.isfile(self._path):
            raise ValueError(f"[watch] path: {path!r} is no file")
        if not os.access(folder, os.W_OK):
            raise ValueError(f"[watch] path: {path!r}, the folder {folder} cannot be written to")
        self._tensors, self._metadata, self._problem = {}, {}, None

    def add(self, label, call):
        given = {name for name, value in call.options.items()
                 if value is not None and name not in _HAVE_A_PLACE}
        if given or call.query.dim() > 4:
            self._problem = self._problem or (
                f"[watch] record: {label} has "
                f"{', '.join(sorted(given)) or str(call.query.dim()) + ' axes'}, for which a "
                "recording has no place")
            return
        for part, tensor in zip(("query", "key", "value"), call[:3]):
            # Cloned: the model may write over it before the step ends.
            self._tensors[f"{label}.{part}"] = _with_heads(tensor.detach()).clone()
        scale = call.options["scale"]
        self._metadata[f"{label}.scale"] = repr(
            call.query.shape[-1] ** -0.5 if scale is None else float(scale))
        causal = call.options.get("causal")
        self._metadata[f"{label}.causal"] = "none" if causal is None else str(causal)
        for mask in (call.options["attn_mask"], call.options.get("bias")):
            if mask is not None:
                part = "mask" if mask.dtype == torch.bool else "bias"
                self._tensors[f"{label}.{part}"] = without_repeats(mask.detach()).clone()

    def write(self, **metadata):
        if self._problem:
            raise ValueError(self._problem)
        if not self._tensors:
            raise ValueError("[watch] record: no attention call was seen in this step")
        words = {name: value if isinstance(value, str) else str(value).lower()
                 for name, value in metadata.items()}
        write_safetensors(self._path, self._tensors, {
            "poise.recording": "1", "recorder": f"poise.watch, torch {torch.__version__}",
            **words, **self._metadata})


def _with_heads(tensor):
    return tensor if tensor.dim() > 2 else tensor[None]
