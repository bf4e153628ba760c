"""The ONNX operator Attention (opsets 23, 24 and 25) computed by poise.

In: NumPy arrays, under the operator's own names. Out: its four outputs. Must not happen here: an
import of the package onnx; only poise.onnx.backend needs it.
"""

from .operator import AttentionOutputs, attention

__all__ = ["AttentionOutputs", "attention"]
