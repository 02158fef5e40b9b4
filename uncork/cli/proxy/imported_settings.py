"""Settings of the proxy from KServe's InferenceService or MLServer's model settings."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

from uncork.config.errors import WrongUsage

_PARTS = ("predictor", "transformer", "explainer")
_VARIABLES = {
    "max_batch_size": "MLSERVER_MODEL_MAX_BATCH_SIZE",
    "max_batch_time": "MLSERVER_MODEL_MAX_BATCH_TIME",
}


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The settings of another system. Its times bound the hold; no request is shed for them.

    Attributes:
        source: the file, or the environment.
        max_batch_rows: most rows in a call; None if unset, like the next two.
        max_hold_s: longest time that a call waits for more requests.
        timeout_s: longest time that a call may take.
        missing: the settings whose absence means that the other system does not batch.
    """

    source: str
    max_batch_rows: int | None = None
    max_hold_s: float | None = None
    timeout_s: float | None = None
    missing: frozenset[str] = frozenset()

    def excluding(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings not given; the policy is ``none`` unless all missing ones are given."""
        settings = {
            "max_batch_rows": self.max_batch_rows,
            "max_hold_s": self.max_hold_s,
            "timeout_s": self.timeout_s,
            "policy": None if self.missing <= given.keys() else "none",
        }
        return {name: value for name, value in settings.items() if value is not None and name not in given}


def read_inference_service(path: Path) -> Imported:
    """Read the first ``batcher`` of the InferenceServices in a YAML file.

    A ``timeout`` inside the batcher takes precedence over that of its component.

    Raises:
        OSError: if the file cannot be read.
        WrongUsage: if it is no such file, has no batcher, or a value is wrong.
    """
    # Imported here: `uncork serve` reads the options of the proxy too.
    import yaml

    documents = _parsed(path, lambda text: list(yaml.safe_load_all(text)), language="YAML")
    services = [one for one in documents if isinstance(one, dict) and one.get("kind") == "InferenceService"]
    if not services:
        raise WrongUsage(f"{path} has no document of kind InferenceService")
    specs = [one["spec"] for one in services if isinstance(one.get("spec"), dict)]
    for spec in specs:
        for name in _PARTS:
            part = spec.get(name)
            if isinstance(part, dict) and part.get("batcher") is not None:
                return _from_batcher(part, f"{path}: spec.{name}", source=str(path))
    raise WrongUsage(f"{path} has no batcher in spec.{', spec.'.join(_PARTS)}")


def _from_batcher(part: Mapping[str, Any], where: str, *, source: str) -> Imported:
    batcher = part["batcher"]
    if not isinstance(batcher, dict):
        raise WrongUsage(
            f"{where}.batcher must have maxBatchSize, maxLatency or timeout, got {short(batcher)}"
        )
    hold_ms = _count(batcher, "maxLatency", f"{where}.batcher", least=0)
    timeout_s = _count(batcher, "timeout", f"{where}.batcher", least=1)
    if timeout_s is None:
        timeout_s = _count(part, "timeout", where, least=1)
    return Imported(
        source=source,
        max_batch_rows=_count(batcher, "maxBatchSize", f"{where}.batcher", least=1),
        max_hold_s=None if hold_ms is None else hold_ms / 1000,
        timeout_s=timeout_s,
    )


def read_model_settings(path: Path, environment: Mapping[str, str]) -> Imported:
    """Read ``max_batch_size`` and ``max_batch_time`` of an MLServer ``model-settings.json``.

    The environment provides the settings that the file lacks, as in MLServer.

    Raises:
        OSError: if the file cannot be read.
        WrongUsage: if it is no such file, or a value is wrong.
    """
    settings = _parsed(path, json.loads, language="JSON")
    if not isinstance(settings, dict):
        raise WrongUsage(f"{path} must be a JSON object, got {short(settings)}")
    in_file = {name: (f"{path}: {name}", settings[name]) for name in _VARIABLES if name in settings}
    return _from_mlserver({**_variables(environment), **in_file}, source=str(path))


def read_environment(environment: Mapping[str, str]) -> Imported | None:
    """Read the same settings from the environment; None if it has none.

    Raises:
        WrongUsage: if a value is wrong.
    """
    variables = _variables(environment)
    return _from_mlserver(variables, source="the environment") if variables else None


def _variables(environment: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    """Return the variable and value of each setting in the environment, by its name in a file."""
    return {
        name: (variable, environment[variable])
        for name, variable in _VARIABLES.items()
        if variable in environment
    }


def _from_mlserver(settings: Mapping[str, tuple[str, Any]], *, source: str) -> Imported:
    """MLServer batches only with a size above 1 and a time above 0."""
    size_where, size = settings.get("max_batch_size", ("", 0))
    time_where, time_s = settings.get("max_batch_time", ("", 0))
    most, hold_s = _whole(size, size_where), _number(time_s, time_where)
    off = {"max_batch_rows": most <= 1, "max_hold_s": hold_s <= 0}
    return Imported(
        source=source,
        max_batch_rows=None if off["max_batch_rows"] else most,
        max_hold_s=None if off["max_hold_s"] else hold_s,
        missing=frozenset(name for name in off if off[name]),
    )


def _parsed(path: Path, parse: Callable[[bytes], Any], *, language: str) -> Any:
    content = path.read_bytes()
    try:
        return parse(content)
    # Parsers raise any error: int() for scalars that only look right, the recursion limit, ...
    except Exception as error:
        raise WrongUsage(f"{path} is not {language}: {' '.join(str(error).split())}") from error


def _count(settings: Mapping[str, Any], name: str, where: str, *, least: int) -> int | None:
    """Return a whole number; None if it is absent or null."""
    value = settings.get(name)
    return None if value is None else _whole(value, f"{where}.{name}", least=least)


def _whole(value: Any, where: str, *, least: float = -math.inf) -> int:
    number = _number(value, where)
    if not (number.is_integer() and number >= least):
        from_least = "" if least == -math.inf else f" from {least}"
        raise WrongUsage(f"{where} must be a whole number{from_least}, got {short(value)}")
    return int(number)


def _number(value: Any, where: str) -> float:
    """Return a finite number, given as number or text."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise WrongUsage(f"{where} must be a number, got {short(value)}")
    return number
