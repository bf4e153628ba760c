"""safetensors files with nothing but Python: the inputs that every contestant reads.

In: a path and tensors as (dtype, shape, bytes), dtype as the format spells it. Out: the same.
Source of the format: github.com/huggingface/safetensors, README section "Format".
Must not happen here: NumPy; the worker's test runs where only Python is installed.
"""

import json
import struct

# Data starts at a multiple of this, so that no reader needs to realign it.
_ALIGNMENT = 64


def write(path, tensors):
    """Writes {name: (dtype, shape, bytes)}; tensors must come widest dtype first."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def read(path):
    """Returns {name: (dtype, shape, memoryview)}."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = memoryview(file.read())
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], tuple(entry["shape"]), data[begin:end])
    return tensors
