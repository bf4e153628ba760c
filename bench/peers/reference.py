"""The float64 answer of every problem: attention, its gradients, tangents and second gradients.

In: a Shape and the file of its inputs. Out: {name: array [B, H, L, D]} of the results of its work,
in their order. Everything follows from P = softmax(S), S = scale q k^T, in blocks of query rows:
  backward         E = dout v^T, dS = P (E - sum_j P E); dq, dk, dv
  jvp              T = scale (dir_q k^T + q dir_k^T), the tangent of S; U = P (T - sum_j P T)
  double backward  of <dir_q, dq> + <dir_k, dk> + <dir_v, dv> = sum T dS + sum P (dout dir_v^T):
                   its gradient by E is U, by P is T E - E sum_j P T - T sum_j P E + dout dir_v^T
Must not happen here: float32, or the whole L x L matrix of more than one block of rows.
"""

import numpy as np

import problem
from shapes import RESULTS

# Query rows handled at a time: bounds the memory.
_ROWS = 512


def _keys(shape, first_row, rows, length):
    """The range of keys that some query of a block of rows can see at all."""
    diagonal = shape.kv_len - shape.q_len
    begin, end = 0, length
    if shape.causal:
        end = min(end, first_row + rows + diagonal)
        if shape.window:
            begin = max(0, first_row + diagonal - shape.window + 1)
    return begin, end


def _weights(shape, query, key, first_row, begin):
    """P of a block of rows of one head and the keys from `begin` on that it can see."""
    scores = query @ key.T / np.sqrt(shape.head_dim)
    if shape.causal:
        last = np.arange(first_row, first_row + len(query))[:, None] + shape.kv_len - shape.q_len
        keys = np.arange(begin, begin + len(key))
        seen = keys <= last
        if shape.window:
            seen &= keys > last - shape.window
        scores[~seen] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def _centred(weights, values):
    """(sum_j P X of every row, P (X - sum_j P X)): softmax's Jacobian applied to X."""
    means = (weights * values).sum(axis=1, keepdims=True)
    return means, weights * (values - means)


def _add_block(shape, p, inputs, results):
    """Adds what a block of rows brings. `inputs` and `results` hold its rows and its keys."""
    scale = 1 / np.sqrt(shape.head_dim)
    query, key, value = (inputs[name] for name in ("query", "key", "value"))
    if "out" in results:
        results["out"] += p @ value
    if "dout" in inputs:
        dout = inputs["dout"]
        e = dout @ value.T
        delta, ds = _centred(p, e)
    if "dq" in results:
        results["dq"] += scale * ds @ key
        results["dk"] += scale * ds.T @ query
        results["dv"] += p.T @ dout
    if "direction_query" not in inputs:
        return
    along_query, along_key, along_value = (
        inputs[f"direction_{name}"] for name in ("query", "key", "value"))
    t = scale * (along_query @ key.T + query @ along_key.T)
    mean, u = _centred(p, t)
    tangent_out = u @ value + p @ along_value
    if "tangent_out" in results:
        results["tangent_out"] += tangent_out
    if "second_query" in results:
        by_p = t * e - e * mean - t * delta + dout @ along_value.T
        _, by_s = _centred(p, by_p)
        results["second_query"] += scale * (by_s @ key + ds @ along_key)
        results["second_key"] += scale * (by_s.T @ query + ds.T @ along_query)
        results["second_value"] += u.T @ dout
        results["second_dout"] += tangent_out


def answer(shape, path):
    """{name: float64 [B, H, L, D]}. Every query of these shapes sees a key."""
    arrays = problem.load(path)
    lengths = arrays.get("lengths", np.full(shape.batch, shape.kv_len))
    inputs = {name: problem.as_bhld(arrays[name], shape) for name in shape.inputs()}
    results = {name: np.zeros(inputs[like].shape) for name, like in RESULTS[shape.work].items()}
    likes = shape.inputs() | RESULTS[shape.work]
    for b in range(shape.batch):
        for h in range(shape.q_heads):
            heads = {name: h if like == "query" else h // shape.group
                     for name, like in likes.items()}
            wide = {name: problem.widen(array[b, heads[name]]).astype(np.float64)
                    for name, array in inputs.items()}
            for row in range(0, shape.q_len, _ROWS):
                rows = slice(row, min(row + _ROWS, shape.q_len))
                keys = slice(*_keys(shape, row, rows.stop - row, lengths[b]))
                block = {name: array[rows if likes[name] == "query" else keys]
                         for name, array in wide.items()}
                views = {name: array[b, heads[name], rows if likes[name] == "query" else keys]
                         for name, array in results.items()}
                p = _weights(shape, block["query"], block["key"], row, keys.start)
                _add_block(shape, p, block, views)
    return results
