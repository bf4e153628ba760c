"""What type checkers are told: poise/_core.pyi, which the build writes from the module.

In: the stub beside the module. Out: annotations that are Python, and arrays that may be used as
arrays. Must not happen here: a type checker, which a user need not have.
"""

import ast
import pathlib

import pytest

import poise

STUB = pathlib.Path(poise._core.__file__).with_name("_core.pyi")
if not STUB.exists():
    pytest.skip("the stub was not built: target poise_python_stub", allow_module_level=True)
CLASSES = {node.name: node for node in ast.parse(STUB.read_text()).body
           if isinstance(node, ast.ClassDef)}


def returned(name):
    """{method or property: the annotation of what it returns} of a class."""
    return {node.name: ast.unparse(node.returns) for node in CLASSES[name].body
            if isinstance(node, ast.FunctionDef)}


def test_annotations_are_python():
    for node in ast.walk(ast.parse(STUB.read_text())):
        if isinstance(node, ast.FunctionDef):
            ast.parse(ast.literal_eval(node.returns) if isinstance(node.returns, ast.Constant)
                      and isinstance(node.returns.value, str) else ast.unparse(node.returns))


@pytest.mark.parametrize("name", ["Aux", "Gradients"])
def test_arrays_of_the_callers_kind_are_any(name):
    kinds = {what for method, what in returned(name).items() if not method.startswith("__")}
    assert kinds == {"Any"}


def test_statistics_are_arrays():
    found = returned("Stats")
    assert "float64" in found["max_score"] and "int64" in found["rows"]
    assert "NDArray" in found["quantile"] and "NDArray" in found["histogram"]
    assert "object" not in {found[name] for name in found if not name.startswith("__")}


def test_the_packages_names_are_told():
    assert {"qk_clip_", "torch", "use", "watch", *poise.__all__} <= set(dir(poise))
    assert "version" in {node.target.id for node in ast.parse(STUB.read_text()).body
                         if isinstance(node, ast.AnnAssign)}
