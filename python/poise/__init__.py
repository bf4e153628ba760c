"""poise: scaled dot-product attention for CPUs that measures the temperature of its softmax.

In: NumPy arrays, or anything with DLPack on the CPU (torch, JAX), float16, bfloat16, float32 or
float64, any strides, never copied. Out: arrays of the same kind. Must not happen here: an import of
torch or another framework.

>>> import numpy as np, poise
>>> q = k = v = np.zeros((1, 2, 4, 8), np.float32)
>>> poise.scaled_dot_product_attention(q, k, v, is_causal=True).shape
(1, 2, 4, 8)
"""

from typing import TYPE_CHECKING

from ._core import (
    Aux,
    AuxRequest,
    Flag,
    Gradients,
    HeadHealth,
    Health,
    Options,
    Report,
    Stats,
    StatsRequest,
    active_isa,
    available_isas,
    get_num_threads,
    judge,
    set_isa,
    set_num_threads,
)
from ._core import version as __version__
from .functional import attention, explain, scaled_dot_product_attention
from .gradient import backward, double_backward, jvp
from .health import report, to_html, to_json, to_text

if TYPE_CHECKING:  # what __getattr__ below loads
    from . import torch as torch
    from ._clip import qk_clip_ as qk_clip_
    from ._torch_use import use as use
    from ._watch import watch as watch

__all__ = [
    "Aux",
    "AuxRequest",
    "Flag",
    "Gradients",
    "HeadHealth",
    "Health",
    "Options",
    "Report",
    "Stats",
    "StatsRequest",
    "__version__",
    "active_isa",
    "attention",
    "available_isas",
    "backward",
    "double_backward",
    "explain",
    "get_num_threads",
    "judge",
    "jvp",
    "report",
    "scaled_dot_product_attention",
    "set_isa",
    "set_num_threads",
    "to_html",
    "to_json",
    "to_text",
]


# What needs torch is loaded when it is asked for.
_LATER = {"qk_clip_": "._clip", "torch": ".torch", "use": ".torch", "watch": "._watch"}


def __getattr__(name):
    if name in _LATER:
        from importlib import import_module

        module = import_module(_LATER[name], __name__)
        return module if name == "torch" else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_LATER})
