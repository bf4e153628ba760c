"""The problems every contestant is asked to solve, and what their fields mean.

In: nothing. Out: SHAPES, in the order they are run, and the few facts derived from a shape.
Must not happen here: NumPy or any peer; tests that have only Python read this file.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    """One call of attention with scale 1/sqrt(head_dim).

    causal: query i sees keys up to i + kv_len - q_len (bottom-right; the same as top-left when the
    lengths agree). window: with causal, only the last `window` of those, the newest included; 0 =
    all. padding: the file holds `lengths` [batch]; keys from lengths[b] on do not exist.
    layout: bhld or blhd, the order of the axes in memory.
    """

    name: str
    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    dtype: str = "f32"  # f32, f16 or bf16
    causal: bool = False
    window: int = 0
    padding: bool = False
    layout: str = "bhld"

    @property
    def group(self):
        return self.q_heads // self.kv_heads

    def title(self):
        """B,Hq,Hkv,Lq,Lk,D and what else sets the shape apart."""
        sizes = (self.batch, self.q_heads, self.kv_heads, self.q_len, self.kv_len, self.head_dim)
        words = [",".join(map(str, sizes))]
        words.append("causal" if self.causal else "full")
        if self.window:
            words.append(f"window {self.window}")
        if self.padding:
            words.append("padded")
        if self.layout != "bhld":
            words.append(self.layout)
        if self.dtype != "f32":
            words.append(self.dtype)
        return " ".join(words)


SHAPES = (
    Shape("full_1024", 1, 16, 16, 1024, 1024, 64),
    Shape("causal_1024", 1, 16, 16, 1024, 1024, 64, causal=True),
    Shape("causal_4096", 1, 8, 8, 4096, 4096, 64, causal=True),
    Shape("causal_2048_d128", 1, 8, 8, 2048, 2048, 128, causal=True),
    Shape("gqa_causal_1024", 1, 32, 8, 1024, 1024, 128, causal=True),
    Shape("padded_128", 8, 12, 12, 128, 128, 64, padding=True),
    Shape("short_64", 64, 12, 12, 64, 64, 32),
    Shape("decode_4096", 1, 32, 8, 1, 4096, 128),
    Shape("decode_4096_bf16", 1, 32, 8, 1, 4096, 128, dtype="bf16"),
    Shape("decode_4096_f16", 1, 32, 8, 1, 4096, 128, dtype="f16"),
    Shape("decode_4096_b8", 8, 32, 8, 1, 4096, 128),
    Shape("decode_4096_b8_bf16", 8, 32, 8, 1, 4096, 128, dtype="bf16"),
    Shape("decode_16384_mha", 1, 32, 32, 1, 16384, 128),
    Shape("decode_16384_mha_bf16", 1, 32, 32, 1, 16384, 128, dtype="bf16"),
    Shape("chunk_16", 1, 32, 8, 16, 4096, 128, causal=True),
    Shape("window_256", 1, 8, 8, 8192, 8192, 64, causal=True, window=256),
    Shape("tiny", 1, 4, 4, 16, 16, 8),
    Shape("full_1024_d80", 1, 16, 16, 1024, 1024, 80),
    Shape("full_1024_d96", 1, 16, 16, 1024, 1024, 96),
    Shape("full_1024_blhd", 1, 16, 16, 1024, 1024, 64, layout="blhd"),
    Shape("causal_1024_blhd", 1, 16, 16, 1024, 1024, 64, causal=True, layout="blhd"),
)
