"""Findings about what all services need together: cores, memory and GPUs of the machine."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from uncork.cli.check.figures import Findings, Plan, error, warning
from uncork_dispatcher.wording import mebibytes

Plans = Mapping[str, Plan]
"""The plan of each service by name; the only one may have none."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The needs of all workers on this machine, and its resources.

    Attributes:
        worker_bytes: memory of all workers before their first batches; None if unknown for a service.
        free_bytes: available memory; None if unknown.
        gpus: those that have workers.
    """

    workers: int
    cores: int
    worker_bytes: int | None
    free_bytes: int | None
    gpus: tuple[str, ...]


def needs_of(plans: Plans) -> Needs:
    here = [plan for plan in plans.values() if not plan.is_elsewhere]
    each = [None if plan.worker_bytes is None else plan.workers * plan.worker_bytes for plan in here]
    known = [one for one in each if one is not None]
    machine = next(iter(plans.values()))
    return Needs(
        workers=sum(plan.workers for plan in here),
        cores=machine.cores,
        worker_bytes=sum(known) if len(known) == len(each) else None,
        free_bytes=machine.free_bytes,
        gpus=tuple(_services_by_gpu(plans)),
    )


def with_own_memory(name: str, plans: Plans) -> Plan:
    """Return the plan of a service; its free memory is what the workers of the others leave."""
    plan = plans[name]
    if plan.is_elsewhere or plan.free_bytes is None:
        return replace(plan, free_bytes=None)
    others = sum(one.workers * (one.worker_bytes or 0) for other, one in plans.items() if other != name)
    return replace(plan, free_bytes=max(0, plan.free_bytes - others))


def judge_resources(plans: Plans) -> Findings:
    """Yield the findings about all services together, or about the only one."""
    plans = {name: plan for name, plan in plans.items() if not plan.is_elsewhere}
    if not plans:
        return
    needs = needs_of(plans)
    yield from _cores(plans, needs)
    yield from _memory(plans, needs)
    for gpu, services in _services_by_gpu(plans).items():
        if len(services) > 1:
            yield warning("gpu-shared", gpu=gpu, services=" and ".join(services))


def _cores(plans: Plans, needs: Needs) -> Findings:
    cores = needs.cores
    on_cores = {name: plan.workers for name, plan in plans.items() if not plan.gpus}
    threads = sum(plan.workers * (plan.threads or 1) for plan in plans.values())
    workers = sum(on_cores.values())
    if workers > cores:
        key = "workers-above-cores" if len(plans) == 1 else "workers-above-cores/several"
        yield warning(key, workers=workers, shares=_shares(on_cores), cores=cores, to=cores)
    elif threads > cores and any(plan.threads is not None for plan in plans.values()):
        limits = sorted({plan.threads for plan in plans.values() if plan.threads is not None})
        yield warning(
            "threads-above-cores",
            limits=" and ".join(map(str, limits)),
            workers=needs.workers,
            threads=threads,
            cores=cores,
        )


def _memory(plans: Plans, needs: Needs) -> Findings:
    """Judge the memory of idle workers."""
    base, free, workers = needs.worker_bytes, needs.free_bytes, needs.workers
    if base is None or free is None or base <= free:
        return
    sizes = {name: mebibytes(plan.worker_bytes or 0) for name, plan in plans.items()}
    if len(plans) == 1:
        [size] = sizes.values()
        to = max(1, free * workers // base)
        yield error("workers-above-memory", workers=workers, shares=f" of {size}", free=free, to=to)
    else:
        shares = _shares({name: f"{plans[name].workers} of {size}" for name, size in sizes.items()})
        yield error("workers-above-memory/several", workers=workers, shares=shares, free=free)


def _services_by_gpu(plans: Plans) -> dict[str, list[str]]:
    """Return the GPUs that have workers, each with the names of their services."""
    services: dict[str, list[str]] = {}
    for name, plan in plans.items():
        for gpu in plan.gpus[: plan.workers]:
            services.setdefault(gpu, []).append(name)
    return services


def _shares(of_services: Mapping[str, object]) -> str:
    """Return what each of several services has of a sum, in brackets."""
    if len(of_services) == 1:
        return ""
    return f" ({', '.join(f'{name}: {share}' for name, share in of_services.items())})"
