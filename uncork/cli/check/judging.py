"""The findings that follow from figures; pure."""

from collections.abc import Mapping
from dataclasses import replace

from uncork.cli.check.apis import judge_api
from uncork.cli.check.figures import ApiFigures, Figures, Finding, Findings, Plan, error, warning
from uncork.cli.check.resources import judge_resources, with_own_memory

_ORDER = ("error", "warning", "note")
_LOCAL = ("127.", "::1", "localhost")


def judge(services: Mapping[str, Figures]) -> list[Finding]:
    """Return all findings, the worst first; of those, first what concerns all services and the server."""
    plans = {name: figures.plan for name, figures in services.items()}
    found = [*judge_resources(plans), *(one for plan in [*plans.values()][:1] for one in _listeners(plan))]
    for name, figures in services.items():
        own = replace(figures, plan=with_own_memory(name, plans))
        found += [one._replace(service=name) for one in _of_service(own)]
    return sorted(found, key=lambda one: _ORDER.index(one.severity))


def _of_service(figures: Figures) -> Findings:
    plan = figures.plan
    yield from _gpus(plan)
    yield from _limit(plan)
    for api in figures.apis:
        for finding in (*judge_api(api, plan), *_neighbor(api, figures), *_batch_memory(plan, api)):
            yield finding._replace(api=api.name)


def _neighbor(api: ApiFigures, figures: Figures) -> Findings:
    """Judge the goal of an API whose requests may wait for a batch of another."""
    goal_ms, own_ms = api.settings.mb_max_latency, 0.0 if api.times is None else api.times.smallest_ms
    others = [
        (other.times.smallest_ms, other.name)
        for other in figures.apis
        if other is not api and other.times is not None and not other.is_apart
    ]
    if api.times is None or api.is_apart or not others or own_ms > goal_ms:
        return
    other_ms, other = max(others)
    if own_ms + other_ms > goal_ms:
        given = {"parts": "workers", "to": max(2, figures.plan.workers)}
        yield warning(
            "goal-below-neighbor", other=other, other_s=other_ms / 1000, goal_s=goal_ms / 1000, **given
        )


def _gpus(plan: Plan) -> Findings:
    workers, gpus = plan.workers, len(plan.gpus)
    if gpus and workers != gpus and workers:
        yield warning("workers-above-gpus" if workers > gpus else "gpus-unused", workers=workers, gpus=gpus)


def _limit(plan: Plan) -> Findings:
    """Judge the memory of an idle worker."""
    base, limit = plan.worker_bytes, plan.max_worker_memory_bytes
    if base is not None and limit is not None and base > limit:
        yield error("worker-above-limit", base=base, limit=limit, to_bytes=2 * base)


def _batch_memory(plan: Plan, api: ApiFigures) -> Findings:
    """Judge the memory of workers that run a full batch, unless idle ones do not fit already."""
    if api.times is not None and api.times.fits < api.settings.limit_rows:
        fits = api.times.fits
        figures = {"unit": api.unit, "part": "worker", "setting": "mb_max_batch_size", "to": int(fits)}
        yield warning("memory-limit", fits=fits, **figures)
        return
    base = plan.worker_bytes
    if base is None or (plan.free_bytes is not None and plan.workers * base > plan.free_bytes):
        return
    if api.times is None or not api.times.memory_per_row_bytes or api.is_single:
        return
    each, cap = api.times.memory_per_row_bytes, api.settings.limit_rows
    needs = base + each * cap
    free_each = None if plan.free_bytes is None else plan.free_bytes / plan.workers
    for found, key, room in (
        (error, "cap-above-memory/machine", free_each),
        (warning, "cap-above-memory/limit", plan.max_worker_memory_bytes),
    ):
        if room is not None and base < room < needs:
            to = max(1, int(0.8 * (room - base) / each))
            yield found(key, cap=cap, unit=api.unit, needs=needs, base=base, each=each, room=room, to=to)
            return


def _listeners(plan: Plan) -> Findings:
    wanted, possible = plan.max_connections, plan.possible_connections
    if wanted is not None and wanted > possible:
        yield warning("connections-above-files", connections=wanted, possible=possible)
    if plan.has_keys and not plan.has_tls and not _is_local(plan.host):
        yield warning("keys-without-tls", host=plan.host)
    if plan.admin_host is not None and not _is_local(plan.admin_host):
        yield warning("admin-is-public", host=plan.admin_host)


def _is_local(host: str) -> bool:
    return host.startswith(_LOCAL)
