"""Services of all kinds."""

from random import Random
from typing import Any

from msgspec.structs import replace

from tests.simulation.draws import Draws
from uncork_workers.wire.schema import ApiDescription, ApiSettings, ServiceDescription


def some_service(draws: Draws, prefix: str) -> ServiceDescription:
    """Return a service with one to three APIs, each with some features, whose choices have a prefix."""
    choices = draws.random(f"{prefix}service")
    names = [f"a{number}" for number in range(choices.choice([1, 1, 2, 3]))]
    return ServiceDescription(name="Sim", apis=[_some_api(name, draws, prefix) for name in names])


def changed_service(draws: Draws, service: ServiceDescription) -> ServiceDescription:
    """Return the service as other code defines it: an API fewer, or with other settings."""
    *others, last = service.apis
    if others and draws.happens("removes_api", 0.5):
        return replace(service, apis=others)
    again = _some_api(last.name, draws, "again.")
    # A request for one task is nonsense for another.
    return replace(service, apis=[*others, again if again.task == last.task else last], version="2")


def _some_api(name: str, draws: Draws, prefix: str) -> ApiDescription:
    choices: Random = draws.random(prefix + name)

    def has(feature: str, probability: float) -> bool:
        return draws.happens(f"{prefix}{name}.{feature}", probability)

    streams = has("streams", 0.1)
    kind = "ndarray" if has("array", 0.15) else "raw" if has("raw", 0.1) else "json"
    has_fields = kind == "json"
    classes = not streams and has("classes", 0.25)
    coalesces = not streams and has("coalesces", 0.25)
    concurrent = has("concurrent", 0.15)
    has_cost = has_fields and not streams and has("cost", 0.15)
    settings: dict[str, Any] = {
        "mb_max_latency": choices.choice([5, 50, 300, 2000]),
        "mb_max_batch_size": choices.choice([1, 4, 16, 1000]),
        "timeout": choices.choice([1, 5]),
        "policy": choices.choice(["cork", "cork", "fixed:20", "fixed:0:4", "aimd"]),
        "idempotent": coalesces or not has("not_idempotent", 0.2),
        "cost": "n" if has_cost else None,
        "allowed_batch_sizes": (2, 4) if not streams and has("sizes", 0.1) else None,
        "workers": 1 if not concurrent and name != "a0" and has("reserves", 0.3) else None,
    }
    if classes:
        settings["policy"] = "cork"
    group_by = choices.choice(["g", "header:x-tenant"]) if has_fields else "header:x-tenant"
    form: dict[str, Any] = {
        "json": {},
        "ndarray": {"dtype": "int64", "shape": [4]},
        "raw": {"accepts": ["*"]},
    }
    return ApiDescription(
        name=name,
        route=f"/{name}",
        input={"kind": kind, **form[kind]},
        settings=ApiSettings(**settings),
        streams=streams,
        task="embeddings" if has_fields and not streams and has("texts", 0.15) else "",
        classes={"interactive": settings["mb_max_latency"], "bulk": 10_000} if classes else None,
        coalesce=coalesces,
        group_by=group_by if not streams and has("groups", 0.25) else None,
        concurrency=choices.choice([2, 3]) if concurrent else 1,
    )
