"""What the PyTorch contestants share: inputs as tensors, masks, threads.

In: a shape as a dictionary, the file of its inputs. Out: torch tensors seen as [B, H, L, D].
Must not happen here: a choice of operator or backend.
"""

import torch

import problem
from shapes import Shape

VERSIONS = {"torch": torch.__version__}
_TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def _tensor(array, shape):
    # clone(): torch's allocator aligns to 64 bytes, the file's bytes need not be.
    if shape.dtype == "bf16":
        tensor = torch.from_numpy(array.view("int16").copy()).view(torch.bfloat16).clone()
    else:
        tensor = torch.from_numpy(array.copy()).clone()
    return tensor if shape.layout == "bhld" else tensor.transpose(1, 2)


def load(fields, path, threads):
    """Returns shape, [query, key, value], lengths or None; sets the number of threads."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    shape = Shape(**fields)
    arrays = problem.load(path)
    return shape, named(arrays, shape, ("query", "key", "value")), arrays.get("lengths")


def named(arrays, shape, names):
    """Tensors of the file, seen as [B, H, L, D]."""
    return [_tensor(arrays[name], shape) for name in names]


def additive_mask(shape, lengths):
    """0 where visible, -inf elsewhere, in the dtype of the inputs; None when all is visible.

    Boolean masks are turned into this on every call, so it is made once, outside of the clock.
    """
    mask = problem.visible(shape, lengths)
    if mask is None:
        return None
    seen = torch.from_numpy(mask)
    return torch.zeros(seen.shape, dtype=_TYPES[shape.dtype]).masked_fill_(~seen, float("-inf"))


def fold(shape, query, mask):
    """The query heads of a kv head as query rows of it, [B, Hkv, G * Lq, D], and the mask for them.

    A mask with a row per query repeats for every head of the group; one row broadcasts as it is.
    """
    query = query.reshape(shape.batch, shape.kv_heads, shape.group * shape.q_len, shape.head_dim)
    if mask is not None and mask.shape[2] > 1:
        mask = mask.repeat(1, 1, shape.group, 1)
    return query, mask


def unfold(shape, result):
    """A result of folded queries as [B, Hq, Lq, D]."""
    return result.reshape(shape.batch, shape.q_heads, shape.q_len, shape.head_dim)


def to_array(tensor):
    """A result as float32 in the order [B, H, L, D]."""
    return tensor.float().contiguous().numpy()
