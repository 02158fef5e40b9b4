"""All methods that need no batch, by path."""

from collections.abc import Callable, Mapping
from typing import Protocol

from uncork_gateway.grpc.interfaces import StreamingMethod, UnaryMethod
from uncork_gateway.grpc.messages import SERVICES
from uncork_gateway.grpc.services import inference, tensorflow
from uncork_gateway.grpc.services.health import Health
from uncork_gateway.grpc.services.inference import Inference
from uncork_gateway.grpc.services.models import Models
from uncork_gateway.grpc.services.reflection import Reflection
from uncork_gateway.grpc.services.tensorflow import TensorFlow
from uncork_gateway.pages.models.metadata import ModelVersions
from uncork_gateway.readiness import Readiness
from uncork_gateway.repository import RepositoryAccess


class ServiceFront(Protocol):
    """A front end, as the gRPC services see it."""

    readiness: Readiness

    def unready(self) -> str:
        """Return why requests cannot be answered now; empty if they can."""


class ModelMethods:
    """The methods about the server and its models.

    Args:
        models: returns the models by name.
        missing: returns why they are not known yet; empty once each service is described.
        repository: loads and unloads services for clients.
        statistics: whether clients may read statistics.

    Attributes:
        models: the models, for the methods that batch.
        unary: by path.
        streaming: by path.
        not_supported: why the gateway lacks a method of these services, by path.
    """

    not_supported: Mapping[bytes, str] = {**inference.NOT_SUPPORTED, **tensorflow.NOT_SUPPORTED}

    def __init__(
        self,
        front: ServiceFront,
        *,
        models: Callable[[], ModelVersions],
        missing: Callable[[], str],
        repository: RepositoryAccess,
        statistics: bool,
    ) -> None:
        self.models = Models(models, missing)
        self._health = Health(
            self.models, services=SERVICES, unready=front.unready, readiness=front.readiness
        )
        self._reflection = Reflection(SERVICES)
        self.unary: Mapping[bytes, UnaryMethod] = {
            **Inference(self.models, repository, unready=front.unready, statistics=statistics).methods(),
            **TensorFlow(self.models).methods(),
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
