"""Metrics as Prometheus reads them."""

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from uncork_gateway.telemetry.exposition import Collect, Exposition


class Measured:
    """What has metrics; without a name, they have no label ``service``."""

    def __init__(self, *collectors: Collect, name: str = "") -> None:
        self.name = name
        self.collectors = collectors


def exposition_of(*services: Measured) -> Exposition:
    """Return what exposes the metrics of services."""
    return Exposition(lambda: [(one.name, one.collectors) for one in services])


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return a registry with the metrics of one service without a name."""
    return exposition_of(Measured(*[one.collect for one in collectors])).registry
