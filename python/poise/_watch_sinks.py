"""Where measured steps go: TensorBoard, Weights & Biases, MLflow.

In: a Measured for each layer and step. Out: calls of the dashboard's own functions. Must not happen
here: an import of a dashboard that the user has not.
"""

import re

import numpy


def numbers(measured, heads):
    """{name: number}: poise/<what>/<layer>, and with heads poise/<what>/<layer>/h<head>."""
    found = {}
    for name, values in measured.values.items():
        tag = f"poise/{name}/{measured.layer}"
        found[tag] = measured.of_layer(name)
        if heads:
            found |= {f"{tag}/h{head}": float(value) for head, value in enumerate(values)}
    return {tag: value for tag, value in found.items() if numpy.isfinite(value)}


class TensorBoard:
    """A torch.utils.tensorboard.SummaryWriter, or what has its functions."""

    def __init__(self, writer, heads):
        for name in ("add_scalar", "add_histogram_raw"):
            if not callable(getattr(writer, name, None)):
                raise TypeError(f"[watch] writer: {type(writer).__name__} has no {name}, expected "
                                "a SummaryWriter")
        self._writer, self._heads = writer, heads

    def take(self, measured, stats=None):
        for tag, value in numbers(measured, self._heads).items():
            self._writer.add_scalar(tag, value, measured.step)
        if measured.counts is None:
            return
        # The histogram holds counts only: sums are those of the bins' centres.
        counts, edges = measured.counts, measured.edges
        centres = (edges[:-1] + edges[1:]) / 2
        filled = numpy.flatnonzero(counts)
        self._writer.add_histogram_raw(
            f"poise/scores/{measured.layer}", min=float(edges[filled[0]]),
            max=float(edges[filled[-1] + 1]), num=int(counts.sum()),
            sum=float(counts @ centres), sum_squares=float(counts @ centres**2),
            bucket_limits=edges[1:].tolist(), bucket_counts=counts.tolist(),
            global_step=measured.step)


class WeightsAndBiases:
    """A wandb run. Steps are a metric of their own, so that they need not be the run's."""

    def __init__(self, run, heads):
        if not callable(getattr(run, "log", None)):
            raise TypeError(f"[watch] run: {type(run).__name__} has no log, expected a wandb run")
        if callable(getattr(run, "define_metric", None)):
            run.define_metric("poise/step")
            run.define_metric("poise/*", step_metric="poise/step")
        self._run, self._heads = run, heads

    def take(self, measured, stats=None):
        entry = {"poise/step": measured.step, **numbers(measured, self._heads)}
        if measured.counts is not None:
            import wandb

            entry[f"poise/scores/{measured.layer}"] = wandb.Histogram(
                np_histogram=(measured.counts, measured.edges))
        self._run.log(entry)


class MLflow:
    """MLflow's fluent functions, or an object with log_metrics(dict, step=)."""

    def __init__(self, client, heads):
        if client is None:
            import mlflow as client
        if not callable(getattr(client, "log_metrics", None)):
            raise TypeError(f"[watch] client: {type(client).__name__} has no log_metrics")
        self._client, self._heads = client, heads

    def take(self, measured, stats=None):
        # MLflow takes letters, digits and _-./ and blanks in names.
        named = {re.sub(r"[^\w\-./ ]", "_", tag): value
                 for tag, value in numbers(measured, self._heads).items()}
        self._client.log_metrics(named, step=measured.step)
