"""What may be passed: strides, kinds of arrays, dtypes, read-only and empty arrays, results' kinds.

In: NumPy arrays, buffers and DLPack objects. Out: the bits of the contiguous NumPy call. Must not
happen here: a copy that hides a stride.
"""

import array

import ml_dtypes
import numpy as np
import pytest

import poise


class DLPackOnly:
    """An object that knows DLPack and nothing else, as arrays of unknown libraries do."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize("view", [
    lambda x: x, lambda x: np.asfortranarray(x), lambda x: x[:, :, ::-1][:, :, ::-1],
    lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1],
    lambda x: np.repeat(x, 3, -1)[..., 1::3], lambda x: np.ascontiguousarray(x.T).T,
    lambda x: np.pad(x, [(0, 0)] * 3 + [(0, 1)])[..., :-1],
])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_strides_change_no_bit(qkv, view, dtype):
    q, k, v = qkv((2,), 4, 2, 5, 7, 8, dtype=dtype)
    expected = poise.attention(q, k, v)
    out = poise.attention(view(q), view(k), view(v))
    assert out.dtype == expected.dtype and np.array_equal(out, expected)


def test_a_key_may_be_repeated_by_stride_0(qkv):
    q, k, v = qkv((2,), 4, 4, 5, 7, 8)
    one, many = k[:, :, :1], np.broadcast_to(k[:, :, :1], k.shape)
    assert many.strides[2] == 0
    assert np.array_equal(poise.attention(q, many, v), poise.attention(q, np.repeat(one, 7, 2), v))


def test_read_only_inputs_are_fine_and_a_read_only_out_is_refused(qkv):
    q, k, v = qkv((2,), 4, 4, 5, 7, 8)
    expected = poise.attention(q, k, v)
    out = np.empty_like(expected)
    for x in (q, k, v):
        x.flags.writeable = False
    assert poise.attention(q, k, v, out=out) is out
    assert np.array_equal(out, expected)
    out.flags.writeable = False
    with pytest.raises(ValueError, match=r"^\[forward\] out: the array is read-only$"):
        poise.attention(q, k, v, out=out)


def test_results_go_to_the_callers_strides(qkv):
    q, k, v = qkv((2,), 4, 4, 5, 7, 8)
    memory = np.full((2, 5, 4, 16), 7, np.float32)
    out = memory.transpose(0, 2, 1, 3)[..., ::2]
    assert poise.scaled_dot_product_attention(q, k, v, out=out) is out
    assert np.array_equal(out, poise.attention(q, k, v))
    assert (memory[..., 1::2] == 7).all()


@pytest.mark.parametrize("shape", [
    ((0,), 2, 2, 3, 4, 5), ((2,), 0, 0, 3, 4, 5), ((2,), 2, 2, 0, 4, 5), ((2,), 2, 2, 3, 0, 5)])
def test_empty_axes_are_legal(qkv, shape):
    q, k, v = qkv(*shape)
    out = poise.scaled_dot_product_attention(q, k, v)
    assert out.shape == (*q.shape[:-1], v.shape[-1]) and not out.any()


def test_buffers_and_unknown_dlpack_objects_give_numpy_arrays(qkv):
    q, k, v = qkv((), 1, 1, 5, 7, 8)
    expected = poise.attention(q, k, v)
    assert np.array_equal(poise.attention(*(DLPackOnly(x) for x in (q, k, v))), expected)
    views = [memoryview(x) for x in (q, k, v)]
    result = poise.attention(*views)
    assert isinstance(result, np.ndarray) and np.array_equal(result, expected)
    lengths = array.array("i", [3])
    assert np.array_equal(poise.attention(q, k, v, kv_lengths=lengths),
                          poise.attention(q, k, v, kv_lengths=[3]))


def test_arrays_on_a_device_are_refused(qkv):
    q, k, v = qkv((1,), 1, 1, 5, 7, 8)
    with pytest.raises(ValueError, match=r"^\[forward\] key: device cuda:1; poise computes on the "
                                         r"CPU, bring the array there first$"):
        poise.attention(q, DLPackOnly(k, (2, 1)), v)


@pytest.mark.parametrize("dtype", ["complex64", "int8", "uint16", ">f4", "longdouble", "S3"])
def test_other_dtypes_are_refused(qkv, dtype):
    q, k, v = qkv((1,), 1, 1, 5, 7, 8)
    with pytest.raises(TypeError, match=r"\[forward\] query: dtype .*; poise takes float16"):
        poise.attention(q.astype(dtype), k, v)


def test_things_that_are_no_plain_arrays_are_refused(qkv):
    q, k, v = qkv((1,), 1, 1, 5, 7, 8)
    with pytest.raises(TypeError, match=r"query: expected a NumPy array .*, got list"):
        poise.attention(q.tolist(), k, v)
    with pytest.raises(TypeError, match=r"query: None, expected an array"):
        poise.attention(None, k, v)
    with pytest.raises(TypeError, match="numpy.ma array would lose its mask"):
        poise.attention(np.ma.masked_array(q), k, v)
    odd = np.zeros(4, [("a", "f4"), ("b", "i2")])["a"].reshape(1, 1, 4, 1)
    with pytest.raises(ValueError, match="stride of 6 bytes is no multiple"):
        poise.attention(odd, odd, odd)


def test_jax_arrays_come_back_as_jax_arrays(qkv):
    jax = pytest.importorskip("jax")
    q, k, v = (jax.numpy.asarray(x) for x in qkv((2,), 4, 2, 5, 7, 8))
    for dtype in ("float32", "float16", "bfloat16"):
        out, aux = poise.attention(q.astype(dtype), k.astype(dtype), v.astype(dtype),
                                   return_aux=poise.AuxRequest(lse=True))
        assert isinstance(out, jax.Array) and out.dtype == dtype and aux.lse.dtype == "float32"
        numpy_out = poise.attention(*(np.asarray(x.astype(dtype)) for x in (q, k, v)))
        assert np.asarray(out).tobytes() == numpy_out.tobytes()
    with pytest.raises(ValueError, match="out: arrays of jaxlib are immutable; leave it out"):
        poise.attention(q, k, v, out=q * 0)
    assert poise.attention(q, k, v, out=np.empty(q.shape, np.float32)).any()
    with pytest.raises(TypeError, match="query: its __dlpack__ gives no array .Abstract tracer"):
        jax.jit(lambda q: poise.attention(q, k, v))(q)
    with pytest.raises(ValueError, match="dropout_seed: arrays of jax"):
        poise.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
