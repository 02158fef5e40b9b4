"""A gateway's Prometheus metrics."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

from uncork_loadtests.servers import Server


def read_metrics(server: Server) -> str:
    """Return the page of metrics.

    Raises:
        httpx.HTTPError: if there is no answer.
    """
    return httpx.get(server.admin_url("/metrics"), trust_env=False, verify=False).text


def sum_of(metrics: str, name: str, **labels: str) -> float:
    """Return the sum of all samples of this name with these labels."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def batches(server: Server) -> tuple[float, float] | None:
    """Return the batches and rows that a gateway has released; None for other servers."""
    try:
        return read_batches(read_metrics(server))
    except httpx.HTTPError:
        return None


def read_batches(metrics: str) -> tuple[float, float] | None:
    """Find the same in a page of metrics; other servers answer with something else."""
    if "uncork_batch_rows_count" not in metrics:
        return None
    return sum_of(metrics, "uncork_batch_rows_count"), sum_of(metrics, "uncork_batch_rows_sum")
