"""Who takes part: name, library, command and environment of every contestant.

In: the folder of the built workers, the thread count. Out: CONTESTANTS in the order of the tables;
poise comes first, since every ratio is taken against it. A contestant stands only in the records of
the groups of problems it is entered for.
Must not happen here: importing a peer; each one lives in a process of its own.
"""

import dataclasses
import os
import pathlib
import sys

from shapes import GROUPS

_HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Contestant:
    name: str
    program: tuple  # a worker's file name, or a module of contestants/ with its arguments
    is_worker: bool = False
    groups: tuple = ("forward",)  # of shapes.GROUPS: what it is asked for

    def command(self, workers):
        if self.is_worker:
            return [str(pathlib.Path(workers) / self.program[0])]
        return [sys.executable, "-m", *self.program]

    def runs(self, shape):
        return any(shape.work in GROUPS[group] for group in self.groups)


CONTESTANTS = (
    Contestant("poise", ("poise_worker",), is_worker=True, groups=tuple(GROUPS)),
    Contestant("PyTorch SDPA", ("contestants.torch_sdpa",), groups=tuple(GROUPS)),
    Contestant("PyTorch math", ("contestants.torch_sdpa", "--math"),
               groups=("backward", "tangent")),
    Contestant("PyTorch SDPA, folded", ("contestants.torch_sdpa", "--fold")),
    Contestant("PyTorch Flex", ("contestants.torch_flex",)),
    Contestant("oneDNN Graph", ("contestants.onednn",)),
    Contestant("ORT Attention", ("contestants.ort_attention",)),
    Contestant("ORT MHA", ("contestants.ort_mha",)),
    Contestant("ORT GQA", ("contestants.ort_gqa",)),
    Contestant("OpenVINO", ("contestants.openvino_sdpa",)),
    Contestant("JAX", ("contestants.jax_dpa",)),
    Contestant("BLAS", ("blas_worker",), is_worker=True),
)


def environment(threads, work, cpu_flags):
    """Variables every contestant starts with. The pools of all are limited to `threads`."""
    path = os.pathsep.join(filter(None, (str(_HERE), os.environ.get("PYTHONPATH"))))
    variables = {
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "TORCHINDUCTOR_CACHE_DIR": str(pathlib.Path(work).resolve() / "inductor"),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=" + ("true" if threads > 1 else "false"),
    }
    # OpenBLAS of Debian 12 takes processors newer than itself for a Prescott (SSE3).
    if "avx512f" in cpu_flags:
        variables["OPENBLAS_CORETYPE"] = "SkylakeX"
    elif "avx2" in cpu_flags:
        variables["OPENBLAS_CORETYPE"] = "Haswell"
    return variables
