"""poise.onnx: ONNX's own tests of Attention with ONNX's own tolerances, and what they leave out.

In: the node tests of the installed onnx; those of the folder that POISE_ONNX_DATA names (test_*
folders as in onnx/backend/test/data/node, and opset25-windows/*.json). Out: the same outputs. Must
not happen here: a test of Attention that is left out without a word.
"""

import doctest
import json
import os
import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import poise
import poise.onnx
import poise.onnx.operator

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.backend.test import BackendTest  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402

from poise.onnx import backend  # noqa: E402

RTOL, ATOL = 1e-3, 1e-7  # what onnx's loader sets for node tests
FOLDER = pathlib.Path(os.environ.get("POISE_ONNX_DATA") or "/nonexistent")
with_folder = pytest.mark.skipif(
    not os.environ.get("POISE_ONNX_DATA"),
    reason="POISE_ONNX_DATA names no folder with ONNX's newer tests of Attention")


def is_attention(case):
    model = onnx.load(pathlib.Path(case.model_dir) / "model.onnx")
    return {node.op_type for node in model.graph.node} == {"Attention"}


NODE_TESTS = {case.name for case in load_model_tests(kind="node")
              if "attention" in case.name and is_attention(case)}


@pytest.fixture(scope="module")
def runner():  # a TestCase; as a global pytest would collect all that it leaves out
    tests = BackendTest(backend, __name__).include("^test_attention_.*_cpu$").test_cases
    return tests["OnnxBackendNodeModelTest"]


@pytest.mark.parametrize("name", sorted(NODE_TESTS))
def test_onnxs_runner_passes(runner, name):
    runner(f"{name}_cpu").debug()


def test_the_node_tests_are_all_there():
    assert len(NODE_TESTS) == 64 or onnx.__version__ != "1.22.0"


def tensor_of(path):
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


@with_folder
def test_the_folders_node_tests_hold():
    files = sorted(FOLDER.glob("test_*/model.onnx"))
    for file in files:
        model, data = onnx.load(file), file.parent / "test_data_set_0"
        inputs = [tensor_of(data / f"input_{i}.pb") for i in range(len(model.graph.input))]
        expected = [tensor_of(data / f"output_{i}.pb") for i in range(len(model.graph.output))]
        outputs = backend.run_model(model, inputs)
        BackendTest.assert_similar_outputs(expected, outputs, RTOL, ATOL, file.parent.name)
    assert len(files) >= 76


def array_of(entry):
    dtype = {"float": np.float32}.get(entry["dtype"], entry["dtype"])
    return np.array(entry["data"], dtype).reshape(entry["dims"])


@with_folder
def test_the_folders_windows_hold():
    files = sorted((FOLDER / "opset25-windows").glob("*.json"))
    for file in files:
        case = json.loads(file.read_text())
        node = helper.make_node("Attention", case["node_inputs"], case["node_outputs"],
                                **case["attrs"])
        outputs = backend.run_node(node, [array_of(entry) for entry in case["inputs"]],
                                   opset_version=case["opset"])
        expected = [array_of(entry) for entry in case["outputs"]]
        BackendTest.assert_similar_outputs(expected, outputs, RTOL, ATOL, case["name"])
    assert len(files) >= 11


def test_other_models_are_not_compatible():
    models = [onnx.load(pathlib.Path(case.model_dir) / "model.onnx")
              for case in load_model_tests(kind="node")
              if case.name.startswith(("test_add", "test_softmax", "test_attention_4d_"))]
    alone = [m for m in models if [n.op_type for n in m.graph.node] == ["Attention"]]
    assert 0 < len(alone) < len(models)
    assert [m for m in models if backend.is_compatible(m)] == alone


# ---- what those tests leave out ----------------------------------------------------------------
B, HQ, HKV, LQ, LK, D = 2, 4, 2, 3, 5, 8


@pytest.fixture
def arrays(qkv):
    return qkv((B,), HQ, HKV, LQ, LK, D)


def flat(x):
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


def same(left, right):
    return left.dtype == right.dtype and np.array_equal(left, right)


def test_three_axes_give_the_bits_of_four(arrays):
    options = {"is_causal": 1, "return_qk": True, "qk_matmul_output_mode": 3}
    expected = poise.onnx.attention(*arrays, **options)
    heads = {"q_num_heads": HQ, "kv_num_heads": HKV}
    outputs = poise.onnx.attention(*map(flat, arrays), **heads, **options)
    assert same(outputs.Y, flat(expected.Y))
    assert same(outputs.qk_matmul_output, expected.qk_matmul_output)
    assert same(outputs.present_key, arrays[1]) and same(outputs.present_value, arrays[2])
    assert same(poise.onnx.attention(*arrays, **heads, **options).Y, expected.Y)


def test_a_past_gives_the_bits_of_one_long_call(arrays):
    q, k, v = arrays
    for windows in ({}, {"left_window_size": 1}, {"left_window_size": 2, "is_causal": 0}):
        options = {"is_causal": 1, **windows}
        outputs = poise.onnx.attention(q, k[:, :, 2:], v[:, :, 2:], past_key=k[:, :, :2],
                                       past_value=v[:, :, :2], **options)
        expected = poise.attention(
            q, k, v, causal=2 if options["is_causal"] else None, diagonal=2,
            window=(options.get("left_window_size", -1), -1))
        assert same(outputs.Y, expected) and same(outputs.present_key, k)
        assert same(outputs.present_value, v)


@pytest.mark.parametrize("mode, name", [
    (0, "scores"), (1, "capped"), (2, "logits"), (3, "weights")])
def test_padding_of_an_external_cache_influences_nothing_else(arrays, mode, name):
    q, k, v = arrays
    lengths = np.array([2, 4])
    mask = np.random.default_rng(1).standard_normal((LQ, 4)).astype(np.float32)
    options = {"nonpad_kv_seqlen": lengths, "is_causal": 1, "softcap": 2.0, "return_qk": True,
               "qk_matmul_output_mode": mode}
    outputs = poise.onnx.attention(q, k, v, mask, **options)
    assert outputs.present_key is None and outputs.present_value is None
    scores = q @ np.repeat(k, HQ // HKV, 1).swapaxes(-1, -2) / np.sqrt(np.float32(D))
    capped = 2.0 * np.tanh(scores / 2.0)
    if mode < 2:  # the products with padding keys too
        np.testing.assert_allclose(outputs.qk_matmul_output, capped if mode else scores, 1e-4, 1e-6)
    poisoned_k, poisoned_v = k.copy(), v.copy()
    for b, length in enumerate(lengths):
        poisoned_k[b, :, length:] = np.nan
        poisoned_v[b, :, length:] = np.inf
        alone, aux = poise.attention(
            q[b], k[b, :, :length], v[b, :, :length], bias=mask[:, :length], softcap=2.0,
            causal="bottom_right", return_aux=poise.AuxRequest(**{name: True}))
        assert same(outputs.Y[b], alone)
        assert same(outputs.qk_matmul_output[b, :, :, :length], getattr(aux, name))
    assert same(poise.onnx.attention(q, poisoned_k, poisoned_v, mask, **options).Y, outputs.Y)


def test_a_short_mask_is_padded_and_not_broadcast(arrays):
    q, k, v = arrays
    for mask in (np.ones((LQ, 1), bool), np.zeros(1, np.float32), np.zeros(1, ml_dtypes.bfloat16)):
        outputs = poise.onnx.attention(*arrays, mask, return_qk=True, qk_matmul_output_mode=3)
        assert same(outputs.Y, np.repeat(np.repeat(v[:, :, :1], LQ, 2), HQ // HKV, 1))
        assert np.all(outputs.qk_matmul_output == [1, 0, 0, 0, 0])
    nothing = poise.onnx.attention(*arrays, np.zeros((1, LK), bool), return_qk=True,
                                   qk_matmul_output_mode=3)
    assert not nothing.Y.any() and not nothing.qk_matmul_output.any()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sixteen_bits_come_back_as_they_came(arrays, dtype):
    q, k, v = (x.astype(dtype) for x in arrays)
    outputs = poise.onnx.attention(q, k, v, return_qk=True)
    assert outputs.qk_matmul_output.dtype == outputs.Y.dtype == dtype
    assert same(outputs.Y, poise.attention(q, k, v))
    for precision in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16):
        assert same(poise.onnx.attention(q, k, v, softmax_precision=precision).Y, outputs.Y)


def test_double_precision_computes_all_of_it_in_float64(arrays):
    wide = poise.attention(*(x.astype(np.float64) for x in arrays))
    outputs = poise.onnx.attention(*arrays, softmax_precision=TensorProto.DOUBLE)
    assert same(outputs.Y, wide.astype(np.float32))
    assert not same(poise.attention(*arrays), outputs.Y)


@pytest.mark.parametrize("of_query, of_value, computed", [
    (np.float32, np.float64, np.float64), (np.float64, np.float16, np.float64),
    (np.float16, ml_dtypes.bfloat16, np.float32), (ml_dtypes.bfloat16, np.float32, np.float32),
], ids=str)
def test_values_of_another_type_widen_both(arrays, of_query, of_value, computed):
    q, k, v = (x.astype(t) for x, t in zip(arrays, (of_query, of_query, of_value)))
    outputs = poise.onnx.attention(q, k, v)
    expected = poise.attention(*(x.astype(computed) for x in (q, k, v)))
    assert same(outputs.Y, expected.astype(of_query)) and outputs.present_value.dtype == of_value


def test_attributes_reach_the_library(arrays):
    q, k, v = arrays
    outputs = poise.onnx.attention(q, k, v, scale=0.0, left_window_size=0, right_window_size=1)
    expected = poise.attention(q, k, v, scale=0.0, window=(0, 1), diagonal=0)
    assert same(outputs.Y, expected)
    scores = poise.onnx.attention(q * 300, k * 300, v, return_qk=True, scale=1.0)
    q16, k16, v16 = ((x * 300).astype(np.float16) for x in arrays)
    halves = poise.onnx.attention(q16, k16, v16, return_qk=True, scale=1.0)
    beyond = np.abs(scores.qk_matmul_output) > 70000
    assert beyond.any() and np.all(np.isinf(halves.qk_matmul_output[beyond]))


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


Q, K = ones(1, 4, 3, 8), ones(1, 2, 5, 8)
PAST = {"past_key": K, "past_value": K}


@pytest.mark.parametrize("inputs, options, error, sentence", [
    ((Q, K[..., :7], K), {}, ValueError, r"^\[onnx\.attention\] K: head_dim 7"),
    ((Q, K, K[:, :, :4]), {}, ValueError, r"^\[onnx\.attention\] V: "),
    ((Q, ones(1, 3, 5, 8), ones(1, 3, 5, 8)), {}, ValueError, "3"),
    ((Q.tolist(), K, K), {}, TypeError, r"Q: expected a NumPy array, got list"),
    ((Q, None, K), {}, TypeError, r"K: expected a NumPy array, got NoneType"),
    ((Q, K, K, [True]), {}, TypeError, r"attn_mask: expected a NumPy array, got list"),
    ((Q.astype(int), K, K), {}, TypeError, r"Q: dtype int64, expected one of float16, bfloat16"),
    ((Q, K.astype(np.float64), K), {}, TypeError, r"K: dtype float64 differs from Q's float32"),
    ((Q, K, K, ones(3, 5, dtype=np.int32)), {}, TypeError, r"attn_mask: dtype int32, expected"),
    ((Q, K, K, np.array(True)), {}, ValueError, r"attn_mask: no axes"),
    ((Q, K, K, ones(3, 6, dtype=bool)), {}, ValueError, r"^\[onnx\.attention\] attn_mask: .*6"),
    ((Q, K, K, ones(2, 5)), {}, ValueError, r"^\[onnx\.attention\] attn_mask: .*2, 5"),
    ((Q, K[0], K), {}, ValueError, r"K: shape \[2, 5, 8\], expected three axes or four"),
    ((Q[0, 0], K, K), {}, ValueError, r"Q: shape \[3, 8\]"),
    ((Q[0], K[0], K[0]), {}, ValueError, r"q_num_heads: missing; 3-D inputs need it"),
    ((Q[0], K[0], K[0]), {"q_num_heads": 4}, ValueError, r"kv_num_heads: missing"),
    ((Q[0], K[0], K[0]), {"q_num_heads": 3}, ValueError, r"Q: hidden size 8 is no multiple of q_n"),
    ((Q, K, K), {"q_num_heads": 0}, ValueError, r"q_num_heads: 0, expected a positive"),
    ((Q[0], K[0], K[0]), {"q_num_heads": True}, ValueError, r"q_num_heads: True, expected a pos"),
    ((Q, K, K), {"kv_num_heads": 4}, ValueError, r"kv_num_heads: 4, but K has 2 heads"),
    ((Q, K, K), {"past_key": K}, ValueError, r"past_value: missing beside past_key"),
    ((Q, K, K), {"past_value": K}, ValueError, r"past_key: missing beside past_value"),
    ((Q, K, K), {**PAST, "past_key": K[..., :7]}, ValueError,
     r"past_key: shape \[1, 2, 5, 7\], expected \[1, 2, past, 8\] to go before K"),
    ((Q, K, K), {**PAST, "past_key": K[:, :, :4]}, ValueError, r"V: "),
    ((Q, K, K), {**PAST, "past_value": K.astype(np.float16)}, TypeError, r"past_value: dtype"),
    ((Q, K, K), {**PAST, "nonpad_kv_seqlen": np.array([5])}, ValueError,
     r"nonpad_kv_seqlen: given beside past_key"),
    ((Q, K, K), {"nonpad_kv_seqlen": np.array([6])}, ValueError, r"\] nonpad_kv_seqlen"),
    ((Q, K, K), {"nonpad_kv_seqlen": np.array([1, 2])}, ValueError, r"\] nonpad_kv_seqlen"),
    ((Q, K, K), {"nonpad_kv_seqlen": np.array([1.0])}, TypeError, r"\] nonpad_kv_seqlen"),
    ((Q, K, K), {"is_causal": 2}, ValueError, r"is_causal: 2, expected one of \(0, 1\)"),
    ((Q, K, K), {"is_causal": np.array([0, 1])}, ValueError, r"is_causal: array.* one of \(0, 1"),
    ((Q, K, K), {"qk_matmul_output_mode": 4}, ValueError, r"qk_matmul_output_mode: 4"),
    ((Q, K, K), {"qk_matmul_output_mode": 1.0}, ValueError, r"qk_matmul_output_mode: 1.0"),
    ((Q, K, K), {"softmax_precision": 7}, ValueError, r"softmax_precision: 7"),
    ((Q, K, K), {"left_window_size": -2}, ValueError, r"left_window_size: -2, expected -1"),
    ((Q, K, K), {"right_window_size": 1.5}, TypeError, r"right_window_size: expected an int"),
    ((Q, K, K), {"softcap": -1.0}, ValueError, r"^\[onnx\.attention\] softcap"),
    ((Q, K, K), {"scale": float("nan")}, ValueError, r"^\[onnx\.attention\] scale"),
    ((Q, K, K), {"threads": 0}, ValueError, r"^\[onnx\.attention\] threads"),
])
def test_a_bad_input_is_named(inputs, options, error, sentence):
    with pytest.raises(error, match=sentence):
        poise.onnx.attention(*inputs, **options)


def model_of(*nodes, inputs=("Q", "K", "V"), outputs=("Y",), constants=(), opset=24):
    def info(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, list("bhld"))

    graph = helper.make_graph(list(nodes), "graph", [info(n) for n in inputs],
                              [info(n) for n in outputs], initializer=list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def node_of(inputs=("Q", "K", "V"), outputs=("Y",), operator="Attention", **attributes):
    return helper.make_node(operator, inputs, outputs, **attributes)


def test_a_model_may_have_constants_and_several_nodes(arrays):
    q, k, v = arrays
    nodes = [node_of(outputs=("X",), is_causal=1),
             node_of(("X", "K2", "V", "", "", ""), ("Y", "", "", "W"), qk_matmul_output_mode=3)]
    model = model_of(*nodes, outputs=("W", "Y"), constants=[numpy_helper.from_array(k, "K2")])
    weights, out = backend.prepare(model, "CPU").run([q, k, v])
    first = poise.attention(q, k, v, causal="top_left")
    expected, aux = poise.attention(first, k, v, return_aux=poise.AuxRequest(weights=True))
    assert same(out, expected) and same(weights, aux.weights)


@pytest.mark.parametrize("model, device, sentence", [
    (model_of(node_of(operator="Add", inputs=("Q", "K"))), "CPU", "operator ai.onnx.Add, expected"),
    (model_of(node_of(domain="com.microsoft")), "CPU", "operator com.microsoft.Attention"),
    (model_of(node_of(), node_of(("Y",), ("Z",), "Relu")), "CPU", "operator ai.onnx.Relu"),
    (model_of(), "CPU", "model: a graph without nodes"),
    (model_of(node_of(), opset=22), "CPU", "opset: 22, expected 23 or later"),
    (model_of(node_of(left_window_size=1)), "CPU", "left_window_size is not in .* opset 24"),
    (model_of(node_of(left_size=1), opset=25), "CPU", "attribute: left_size is not in"),
    (model_of(node_of()), "CUDA", "device: 'CUDA', expected 'CPU'"),
    (model_of(node_of(is_causal=1.0)), "CPU", r"\[onnx.backend\] model: .*is_causal"),
    (model_of(node_of(("Q", "K", "missing"))), "CPU", r"\[onnx.backend\] model: .*missing"),
])
def test_every_other_model_is_refused(model, device, sentence):
    with pytest.raises(ValueError, match=f"(?s){sentence}"):
        backend.prepare(model, device)
    with pytest.raises(ValueError, match=f"(?s){sentence}"):
        backend.run_model(model, [Q, K, K], device)


def test_other_runs_are_refused():
    ready = backend.prepare(model_of(node_of()))
    with pytest.raises(ValueError, match="inputs: 2 arrays, but the model has 3 inputs: Q, K, V"):
        ready.run([Q, K])
    with pytest.raises(ValueError, match="no option 'fast' is known"):
        ready.run([Q, K, K], fast=True)
    cached = node_of(("Q", "K", "V", "", "", "", "n"), ("Y", "present"))
    with pytest.raises(ValueError, match="present_key: there is none with nonpad_kv_seqlen"):
        backend.run_node(cached, [Q, K, K, np.array([5])])
    with pytest.raises(ValueError, match="inputs: 1 arrays, but the node has 3"):
        backend.run_node(node_of(), [Q])
    with pytest.raises(ValueError, match="device: 'CUDA:1'"):
        backend.run_node(node_of(), [Q, K, K], "CUDA:1")
    with pytest.raises(ValueError, match=r"\[onnx.backend\] node: "):
        backend.run_node(node_of(scale=1), [Q, K, K])
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA")


def test_the_function_needs_no_onnx():
    program = ("import sys; sys.modules['onnx'] = None; import numpy, poise.onnx; "
               "x = numpy.ones((1, 1, 2, 4), numpy.float32); "
               "print(poise.onnx.attention(x, x, x).Y.shape)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "(1, 1, 2, 4)", done.stderr


def test_the_example_runs():
    result = doctest.testmod(poise.onnx.operator)
    assert result.failed == 0 and result.attempted > 0
