"""The health report and its faces.

In: Stats of one layer or of many, or a run log. Out: a Report, or its text, JSON or page. Must not
happen here: a rule, a threshold or a word of the report; they are the library's.
"""

import os
import pathlib
from collections.abc import Iterable

from . import _core

__all__ = ["report", "to_html", "to_json", "to_text"]


def report(
    stats, *, labels=None, title="", model="", text="", precision="", mask="", command="",
    tokens=(), scores_stored="float32", pv_in_bf16=False, at_initialisation=False,
    layers_share_weights=False,
):
    """Judges every layer and composes the health report.

    Args:
        stats: Stats, a list of them (one for each layer), or a dict of label to Stats; or the path
            of a run log (docs/run-log.md): its last step, and the run over time.
        labels: names of the layers; default "L0", "L1", ...
        title, model, text, precision, mask, command: what the page says of the measurement.
        tokens: names of the keys.
        scores_stored, pv_in_bf16, at_initialisation, layers_share_weights: as in judge().

    Returns:
        Report, with to_text(), to_json() and to_html().

    Raises:
        ValueError: labels that do not fit the layers; a file that is no run log. TypeError: what is
        no Stats. OSError: a file that cannot be read. Warns of lines of a log that are cut off.

    Example:
        >>> import numpy as np, poise
        >>> q = k = v = np.random.default_rng(0).standard_normal((1, 2, 64, 16), dtype=np.float32)
        >>> _, aux = poise.attention(q, k, v, return_aux=poise.AuxRequest(stats="full"))
        >>> poise.report({"first": aux.stats}, title="random").to_html()[:15]
        '<!DOCTYPE html>'
    """
    log, log_name = None, ""
    if isinstance(stats, (str, os.PathLike)):
        if labels is not None:
            raise ValueError("[report] labels: given beside a run log, which has its own")
        log_name = os.fspath(stats)
        log, stats = pathlib.Path(log_name).read_bytes(), []
    if isinstance(stats, dict):
        if labels is not None:
            raise ValueError("[report] labels: given beside a dict, which has its own")
        labels, stats = list(stats.keys()), list(stats.values())
    if not isinstance(stats, (_core.Stats, Iterable)):
        raise TypeError(f"[report] stats: {type(stats).__name__}, expected Stats, a list or a dict "
                        "of them, or the path of a run log")
    layers = [stats] if isinstance(stats, _core.Stats) else list(stats)
    for position, layer in enumerate(layers):
        if not isinstance(layer, _core.Stats):
            raise TypeError(
                f"[report] layers: {type(layer).__name__} at {position}, expected Stats")
    return _core.report(
        layers, [_utf8(label) for label in labels or ()], *map(
            _utf8, (title, model, text, precision, mask, command)),
        [_utf8(token) for token in tokens], scores_stored, pv_in_bf16, at_initialisation,
        layers_share_weights, log, _utf8(log_name))


def _utf8(words):
    """As text that has an encoding: names of files may hold bytes that have none."""
    return str(words).encode(errors="replace").decode()


def _as_report(what):
    return what if isinstance(what, _core.Report) else report(what)


def to_text(what, *, unicode=True, colour=False, width=100, all_heads=False, rules=False):
    """The report for terminals, of a Report or of what report() takes; a Health in a few lines.

    width: columns, 40 ... 400. unicode=False keeps to ASCII. colour: escape sequences of a
    terminal. all_heads, rules: the long tables.

    >>> import numpy as np, poise
    >>> q = np.random.default_rng(0).standard_normal((1, 2, 64, 16), dtype=np.float32)
    >>> _, aux = poise.attention(q, q, q, return_aux=poise.AuxRequest(stats=True))
    >>> poise.to_text(aux.stats).endswith(chr(10)), len(poise.to_text(poise.judge(aux.stats))) > 0
    (True, True)
    """
    if isinstance(what, _core.Health):
        return str(what)
    return _as_report(what).to_text(
        unicode=unicode, colour=colour, width=width, all_heads=all_heads, rules=rules)


def to_json(what):
    """The report as JSON, of a Report or of what report() takes (Stats.to_json is the raw data)."""
    return _as_report(what).to_json()


def to_html(what):
    """The report as one self-contained page, of a Report or of what report() takes."""
    return _as_report(what).to_html()
