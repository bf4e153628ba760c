"""The problems every contestant is asked to solve, and what their fields mean.

In: nothing. Out: SHAPES, in the order they are run, and the few facts derived from a shape.
Must not happen here: NumPy or any peer; tests that have only Python read this file.
"""

import dataclasses

# What a problem asks for. Groups are what --only takes, each with its works in words.
GROUPS = {
    "forward": {"forward": "forward"},
    "backward": {"backward": "backward", "forward_backward": "forward + backward"},
    "tangent": {"jvp": "forward + jvp", "double_backward": "double backward",
                "gradient_penalty": "forward + backward + double backward"},
}
_WORDS = {work: words for works in GROUPS.values() for work, words in works.items()}
# The tensors a work reads beside query, key and value, and those it hands out, in the order of an
# answer; each with the input whose extents it has. Directions are tangents of the inputs for jvp
# and cotangents of their gradients for double_backward, whose results are second_*.
_DIRECTIONS = {f"direction_{name}": name for name in ("query", "key", "value")}
_GRADIENTS = {"dq": "query", "dk": "key", "dv": "value"}
_SECOND = {f"second_{name}": name for name in ("query", "key", "value")} | {"second_dout": "query"}
READS = {
    "forward": {},
    "backward": {"dout": "query"},
    "forward_backward": {"dout": "query"},
    "jvp": _DIRECTIONS,
    "double_backward": {"dout": "query"} | _DIRECTIONS,
    "gradient_penalty": {"dout": "query"} | _DIRECTIONS,
}
RESULTS = {
    "forward": {"out": "query"},
    "backward": _GRADIENTS,
    "forward_backward": {"out": "query"} | _GRADIENTS,
    "jvp": {"out": "query", "tangent_out": "query"},
    "double_backward": _SECOND,
    "gradient_penalty": {"out": "query"} | _GRADIENTS | _SECOND,
}


@dataclasses.dataclass(frozen=True)
class Shape:
    """One call of attention, or of its derivatives, with scale 1/sqrt(head_dim).

    work: what is asked for, a key of READS and RESULTS. Where it does not say forward, what forward
    saves is there before the clock starts; where it does not say backward, the same holds for what
    the first gradient saves.
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
    work: str = "forward"

    @property
    def group(self):
        return self.q_heads // self.kv_heads

    def extents(self, like):
        """Extents of a tensor that has those of query, key or value, in the layout's order."""
        heads, length = ((self.q_heads, self.q_len) if like == "query"
                         else (self.kv_heads, self.kv_len))
        axes = (heads, length) if self.layout == "bhld" else (length, heads)
        return (self.batch, *axes, self.head_dim)

    def inputs(self):
        """{name: the input whose extents it has} of everything the file holds, lengths aside."""
        return {name: name for name in ("query", "key", "value")} | READS[self.work]

    def request(self, path, threads):
        """The driver's request to load this problem; protocol.py has its fields."""
        return {"verb": "load", "shape": dataclasses.asdict(self), "inputs": str(path),
                "threads": threads, "reads": list(READS[self.work].items()),
                "results": list(RESULTS[self.work].items())}

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
        if self.work != "forward":
            words.append(_WORDS[self.work])
        return " ".join(words)


_FORWARD = (
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

# One head and fewer heads than threads among them: there a backward has to split its keys.
_BACKWARD = (
    *_FORWARD[:5],
    Shape("batch_128", 8, 12, 12, 128, 128, 64),
    Shape("short_64", 64, 12, 12, 64, 64, 32),
    Shape("one_head_2048", 1, 1, 1, 2048, 2048, 64),
)
_TANGENT = (
    Shape("full_2048", 1, 8, 8, 2048, 2048, 64),
    Shape("causal_2048", 1, 8, 8, 2048, 2048, 64, causal=True),
)


def _with_work(works, shapes):
    return tuple(dataclasses.replace(shape, name=f"{work}_{shape.name}", work=work)
                 for work in works for shape in shapes)


SHAPES = (_FORWARD + _with_work(GROUPS["backward"], _BACKWARD)
          + _with_work(GROUPS["tangent"], _TANGENT))
