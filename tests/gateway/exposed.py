"""Metrics as Prometheus reads them."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from uncork_gateway.telemetry.exposition import Exposition


class Measured:
    """What has metrics; without a name, they have no label ``service``."""

    def __init__(self, *collectors: Collector, name: str = "") -> None:
        self.name = name
        self.collectors: Sequence[Collector] = collectors


def exposition_of(*services: Measured) -> Exposition:
    """Return what exposes the metrics of services."""
    return Exposition(lambda: [(one.name, one.collectors) for one in services])


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return a registry with the metrics of one service without a name."""
    return exposition_of(Measured(*collectors)).registry
