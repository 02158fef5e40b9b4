"""Looks up the models that calls name."""

from collections.abc import Callable, Sequence
from typing import Any

from uncork_gateway.errors import Unavailable
from uncork_gateway.pages.models.metadata import Model, ModelVersions, UnknownModel, find_model


class Models:
    """The models of all services.

    Args:
        models: returns the models by name.
        missing: returns why some models are not known yet; empty once every service is described.
    """

    def __init__(self, models: Callable[[], ModelVersions], missing: Callable[[], str]) -> None:
        self._models = models
        self._missing = missing

    @property
    def present(self) -> ModelVersions:
        """The models known so far."""
        return self._models()

    @property
    def known(self) -> bool:
        """True once every service is described."""
        return not self._missing()

    def require(self) -> ModelVersions:
        """Return the models known so far.

        Raises:
            Unavailable: if no model is known yet.
        """
        models = self._models()
        if not models and (missing := self._missing()):
            raise _unavailable(missing)
        return models

    def find(self, name: str, version: str = "") -> Model:
        """As :func:`find_model`, but raise Unavailable for an unknown name while not all are known."""
        models = self._models()
        if name not in models and (missing := self._missing()):
            # Clients take "unknown model" for final, so it must not be said before the models are known.
            raise _unavailable(missing)
        return find_model(name, models, version=version)

    def versions(self, name: str, version: str = "") -> Sequence[Model]:
        """Return one version of a model, or all, from lowest to highest; raises as :meth:`find`."""
        model = self.find(name, version)
        return [model] if version else list(self._models()[name].values())

    def find_spec(self, spec: Any) -> Model:
        """Return the model that a ``tensorflow.serving.ModelSpec`` names; raises as :meth:`find`."""
        if spec.HasField("version_label"):
            self.find(spec.name)
            raise UnknownModel(
                f"model {spec.name!r} has no version label {spec.version_label!r}; send the number of a "
                "version, or no version"
            )
        return self.find(spec.name, version_in(spec))


def version_in(spec: Any) -> str:
    """Return the version that a ``tensorflow.serving.ModelSpec`` names; empty if it names none."""
    # OpenVINO's client sends 0 for any version.
    return str(spec.version.value or "")


def _unavailable(missing: str) -> Unavailable:
    return Unavailable(missing, reason="no_worker")
