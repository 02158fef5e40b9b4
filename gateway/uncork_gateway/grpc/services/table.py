"""All methods that need no batch, by path."""

from collections.abc import Mapping
from typing import Protocol

from uncork_gateway.grpc.interfaces import StreamingMethod, UnaryMethod
from uncork_gateway.grpc.services import inference, tensorflow
from uncork_gateway.grpc.services.health import Health
from uncork_gateway.grpc.services.inference import Inference
from uncork_gateway.grpc.services.models import Models
from uncork_gateway.grpc.services.reflection import Reflection
from uncork_gateway.grpc.services.tensorflow import TensorFlow
from uncork_gateway.pages.models.metadata import Model
from uncork_gateway.protocols.grpc_messages import FILES
from uncork_gateway.readiness import Readiness
from uncork_gateway.telemetry.metrics import Metrics
from uncork_workers.wire.schema import ServiceDescription


class ServiceFront(Protocol):
    """A front end, as the gRPC services see it."""

    metrics: Metrics
    readiness: Readiness

    def unready(self) -> str:
        """Return why requests cannot be answered now; empty if they can."""


class Served(Protocol):
    """A service, as the gRPC services show it."""

    @property
    def service(self) -> ServiceDescription | None:
        """None until a worker has described the service."""

    @property
    def models(self) -> Mapping[str, Model]:
        """The models by name."""

    @property
    def not_ready_reason(self) -> str:
        """Why no worker is ready."""


class ServiceMethods:
    """The methods about a service and its models.

    Args:
        statistics: whether clients may read statistics.

    Attributes:
        models: the models, for the methods that batch.
        unary: by path.
        streaming: by path.
        not_supported: why the gateway lacks a method of these services, by path.
    """

    not_supported: Mapping[bytes, str] = {**inference.NOT_SUPPORTED, **tensorflow.NOT_SUPPORTED}

    def __init__(self, front: ServiceFront, served: Served, *, statistics: bool) -> None:
        def missing() -> str:
            return served.not_ready_reason if served.service is None else ""

        self.models = models = Models(lambda: served.models, missing)
        self._health = Health(models, services=FILES, unready=front.unready, readiness=front.readiness)
        self._reflection = Reflection(FILES)
        tally = front.metrics.api if statistics else None
        self.unary: Mapping[bytes, UnaryMethod] = {
            **Inference(models, unready=front.unready, tally=tally).methods(),
            **TensorFlow(models, ready=lambda: not front.unready()).methods(),
            **self._health.unary(),
        }
        self.streaming: Mapping[bytes, StreamingMethod] = {
            **self._health.streaming(),
            **self._reflection.streaming(),
        }

    def close(self) -> None:
        """End the streams: a server that drains does not wait for clients that watch it."""
        self._health.close()
        self._reflection.close()
