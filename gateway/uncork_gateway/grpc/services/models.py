"""The models that calls ask for, and the error if there is none."""

from collections.abc import Callable, Mapping
from typing import Any

from uncork_gateway.dialects.v2 import VERSION
from uncork_gateway.errors import Unavailable
from uncork_gateway.pages.models.metadata import Model, UnknownModel, find_model

_RETRY_AFTER_S = 1.0


class Models:
    """The models of all services.

    Args:
        models: returns them by name.
        missing: returns why some are not known yet; empty once each service is described.
    """

    def __init__(self, models: Callable[[], Mapping[str, Model]], missing: Callable[[], str]) -> None:
        self._models = models
        self._missing = missing

    @property
    def present(self) -> Mapping[str, Model]:
        """The models that are known, by name."""
        return self._models()

    @property
    def known(self) -> bool:
        """Whether all models are known."""
        return not self._missing()

    def require(self) -> Mapping[str, Model]:
        """Return the models by name.

        Raises:
            Unavailable: if none is known yet.
        """
        models = self._models()
        if not models and (missing := self._missing()):
            raise _unavailable(missing)
        return models

    def find(self, name: str, version: str = "") -> Model:
        """Return the model of a name; an empty version means the only one.

        Raises:
            Unavailable: if it is unknown, and not all models are known yet.
            UnknownModel: if there is no such model, or it has no such version.
        """
        models = self._models()
        if name not in models and (missing := self._missing()):
            # Clients take "unknown model" for final, so it must not be said before the models are known.
            raise _unavailable(missing)
        model = find_model(name, models)
        if version not in ("", VERSION):
            raise UnknownModel(f"model {name!r} has no version {version!r}; send {VERSION!r} or no version")
        return model

    def find_spec(self, spec: Any) -> Model:
        """Return the model that a ``tensorflow.serving.ModelSpec`` names; raises as :meth:`find`."""
        if spec.HasField("version_label"):
            self.find(spec.name)
            raise UnknownModel(
                f"model {spec.name!r} has no version label {spec.version_label!r}; send version {VERSION} or "
                "no version"
            )
        # OpenVINO's client sends 0 for any version.
        return self.find(spec.name, str(spec.version.value or ""))


def _unavailable(missing: str) -> Unavailable:
    return Unavailable(missing, reason="no_worker", retry_after_s=_RETRY_AFTER_S)
