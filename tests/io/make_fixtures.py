#!/usr/bin/env python3
"""Writes the files of this folder, and the fuzz seeds, with the real libraries, so that the readers
are tested against what NumPy and safetensors write and not only against poise's own writers.

Needs: pip install numpy safetensors ml_dtypes. Values are small integers, so the tests can state
them: element i of every array, in C order, is i (booleans: i odd).
"""

import io
import pathlib
import shutil

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).parent
SEEDS = FOLDER.parent / "fuzz" / "seeds"


def counting(shape, dtype):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return (array % 2 == 1) if dtype == "?" else array.astype(dtype)


class Unseekable(io.RawIOBase):
    """A stream that cannot seek: zipfile then writes sizes behind each member."""

    def __init__(self, file):
        self.file = file

    def writable(self):
        return True

    def write(self, data):
        return self.file.write(data)


def main():
    for name, dtype in {"f2": "<f2", "f4": "<f4", "f8": "<f8", "b1": "?", "i4": "<i4", "i8": "<i8",
                        "u2": "<u2", "big_endian": ">f4"}.items():
        np.save(FOLDER / f"{name}.npy", counting((2, 3), dtype))
    np.save(FOLDER / "fortran.npy", np.asfortranarray(counting((2, 3, 4), "<f4")))
    np.save(FOLDER / "scalar.npy", np.float32(7))
    np.save(FOLDER / "one_axis.npy", counting((5,), "<f4"))
    np.save(FOLDER / "empty.npy", counting((0, 3), "<f4"))
    np.save(FOLDER / "rank5.npy", counting((1, 2, 1, 3, 1), "<f4"))
    np.save(FOLDER / "objects.npy", np.array([{}, None], dtype=object), allow_pickle=True)
    np.save(FOLDER / "structured.npy", np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]))
    np.save(FOLDER / "text.npy", np.array(["ab", "c"]))
    for version in (2, 3):
        with open(FOLDER / f"version{version}.npy", "wb") as file:
            np.lib.format.write_array(file, counting((2, 3), "<f4"), version=(version, 0))

    arrays = {"q": counting((1, 2, 3, 4), "<f4"), "k": np.asfortranarray(counting((5, 4), "<f8")),
              "mask": counting((3, 5), "?")}
    np.savez(FOLDER / "stored.npz", **arrays)
    np.savez_compressed(FOLDER / "deflated.npz", **arrays, zeros=np.zeros((64, 64), "<f4"))
    np.savez(FOLDER / "empty.npz")
    with open(FOLDER / "streamed.npz", "wb") as file:
        np.savez_compressed(Unseekable(file), **arrays)

    tensors = {name: counting((2, 3), dtype) for name, dtype in
               {"f16": "<f2", "f32": "<f4", "f64": "<f8", "bool": "?", "i32": "<i4", "i64": "<i8",
                "u8": "u1"}.items()}
    tensors["bf16"] = counting((2, 3), ml_dtypes.bfloat16)
    tensors["scalar"] = np.array(7, dtype="<f4")
    tensors["rank5"] = counting((1, 2, 1, 3, 1), "<f4")
    tensors["empty"] = counting((0, 3), "<f4")
    save_file(tensors, FOLDER / "all_types.safetensors", metadata={"made": "by safetensors"})
    save_file({}, FOLDER / "no_tensors.safetensors")


def write_fuzz_seeds():
    """What the fuzzers start from: files of this folder, and two recordings."""
    kinds = {"npy": ["f4", "b1", "fortran", "scalar", "rank5", "version2", "version3", "empty"],
             "npz": ["stored", "deflated", "streamed", "empty"],
             "safetensors": ["all_types", "no_tensors"]}
    for kind, names in kinds.items():
        (SEEDS / kind).mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copyfile(FOLDER / f"{name}.{kind}", SEEDS / kind / f"{name}.{kind}")
    folder = SEEDS / "recording"
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"layer.{layer}.{part}": counting((1, heads, 2, 2), "<f2")
               for layer in (0, 1) for part, heads in (("query", 2), ("key", 1), ("value", 1))}
    tensors |= {"layer.0.bias": np.zeros((2, 2), "<f4"), "layer.1.mask": counting((2, 2), "?")}
    save_file(tensors, folder / "two_layers.safetensors",
              metadata={"poise.recording": "1", "scale": "0.5", "layer.1.causal": "top_left",
                        "tokens": '["a","b"]'})
    save_file({f"a.{part}": np.zeros((1, 2, 2), "<f4") for part in "qkv"},
              folder / "rank3_short.safetensors")


if __name__ == "__main__":
    main()
    write_fuzz_seeds()
