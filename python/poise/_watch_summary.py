"""What is kept of every measured step: some numbers for each head.

In: poise.Stats of a layer. Out: a Measured with arrays [Hq], and the scores' histogram of level
full. Must not happen here: a statistic with a definition of its own.
"""

from typing import NamedTuple

import numpy

# How the numbers of a layer's heads become one of the layer. Gradients are there after backward.
NAMES = {
    "max_score": max, "max_logit": max, "entropy_ratio": None, "top1": None,
    "saturated_share": None, "score_variance": None, "expected_transmission": None,
    "transmission": None,
}


class Measured(NamedTuple):
    """One layer in one step. values: {name of Stats: array [Hq]}, without those not measured.

    counts [64] and edges [65]: scores of all heads, or None below level full.
    """

    step: int
    layer: str
    values: dict
    counts: numpy.ndarray | None
    edges: numpy.ndarray | None

    def of_layer(self, name):
        """One number of the layer: the largest of a maximum, the mean of a mean."""
        values = self.values[name]
        return float(numpy.nanmax(values) if NAMES[name] is max else numpy.nanmean(values))


def summary(stats):
    """(values, counts, edges) of Measured."""
    values = {name: numpy.asarray(getattr(stats, name)) for name in NAMES}
    values = {name: value for name, value in values.items() if not numpy.isnan(value).all()}
    counts, edges = stats.histogram()
    counts = counts.sum(0)
    if stats.level != "full" or counts.sum() == 0:
        return values, None, None
    return values, counts, edges
