"""The findings that follow from figures; pure."""

from dataclasses import replace

from uncork.cli.check.apis import judge_api
from uncork.cli.check.figures import ApiFigures, Figures, Finding, Findings, Plan, error, warning
from uncork.cli.serve.server_options import OTHER_FILES
from uncork_dispatcher.plural import plural
from uncork_workers.memory import mebibytes

_ORDER = ("error", "warning", "note")
_LOCAL = ("127.", "::1", "localhost")


def judge(figures: Figures) -> list[Finding]:
    """Return all findings, the worst first."""
    plan = figures.plan
    found = [*_processes(plan), *_memory(plan), *_listeners(plan)]
    for api in figures.apis:
        found += [replace(one, api=api.name) for one in (*judge_api(api, plan), *_batch_memory(plan, api))]
    return sorted(found, key=lambda one: _ORDER.index(one.severity))


def _processes(plan: Plan) -> Findings:
    workers, cores, gpus = plan.workers, plan.cores, plan.gpus
    if gpus and workers > len(gpus):
        yield warning(
            "workers-above-gpus",
            f"{workers} workers share {plural(len(gpus), 'GPU')}",
            f"set --workers to {len(gpus)}, unless several workers fit on one GPU",
        )
    elif 0 < workers < len(gpus):
        yield warning(
            "gpus-unused",
            f"{len(gpus)} GPUs for {plural(workers, 'worker')}: some are never used",
            f"set --workers to {len(gpus)}",
        )
    if not gpus and workers > cores:
        yield warning(
            "workers-above-cores",
            f"{workers} workers share {plural(cores, 'core')}, and the gateway needs one too",
            f"set --workers to {cores}, unless handlers mostly wait for I/O",
        )
    elif plan.threads is not None and plan.threads * workers > cores:
        yield warning(
            "threads-above-cores",
            f"OMP_NUM_THREADS={plan.threads} gives {plural(workers, 'worker')} "
            f"{plural(plan.threads * workers, 'thread')} in total, on {plural(cores, 'core')}",
            "unset OMP_NUM_THREADS and similar variables: each worker then gets its share of the cores",
        )


def _memory(plan: Plan) -> Findings:
    """Judge the memory of idle workers."""
    base, free, limit = plan.worker_bytes, plan.free_bytes, plan.max_worker_memory_bytes
    if base is None:
        return
    if limit is not None and base > limit:
        yield error(
            "worker-above-limit",
            f"a worker uses {mebibytes(base)} before its first batch, but --max-worker-memory is "
            f"{mebibytes(limit)}",
            f"set --max-worker-memory above {mebibytes(2 * base)}",
        )
    if free is not None and plan.workers * base > free:
        yield error(
            "workers-above-memory",
            f"{plural(plan.workers, 'worker')} of {mebibytes(base)} {'does' if plan.workers == 1 else 'do'} "
            f"not fit into the {mebibytes(free)} of free memory",
            f"set --workers to {max(1, free // base)}",
        )


def _batch_memory(plan: Plan, api: ApiFigures) -> Findings:
    """Judge the memory of workers that run a full batch, unless idle ones do not fit already."""
    base = plan.worker_bytes
    if base is None or (plan.free_bytes is not None and plan.workers * base > plan.free_bytes):
        return
    if api.times is None or not api.times.memory_per_row_bytes or api.is_single:
        return
    each, cap = api.times.memory_per_row_bytes, api.settings.limit_rows
    needs = base + each * cap
    free_each = None if plan.free_bytes is None else plan.free_bytes / plan.workers
    for found, allowed, room in (
        (error, "but the free memory per worker is", free_each),
        (warning, "but --max-worker-memory is", plan.max_worker_memory_bytes),
    ):
        if room is not None and base < room < needs:
            yield found(
                "cap-above-memory",
                f"a full batch of {cap} {api.unit} needs {mebibytes(needs)} ({mebibytes(base)}, plus "
                f"{each / 2**20:.3g} MiB each), {allowed} {mebibytes(room)}",
                f"set mb_max_batch_size to {max(1, int(0.8 * (room - base) / each))}",
            )
            return


def _listeners(plan: Plan) -> Findings:
    if plan.open_files is not None and plan.max_connections + OTHER_FILES > plan.open_files:
        yield error(
            "connections-above-files",
            f"--max-connections is {plan.max_connections}, but the limit of open files is {plan.open_files}",
            f"raise the limit (ulimit -n), or set --max-connections to "
            f"{max(1, plan.open_files - OTHER_FILES)}",
        )
    if plan.has_keys and not plan.has_tls and not _is_local(plan.host):
        yield warning(
            "keys-without-tls",
            f"API keys are sent unencrypted to {plan.host}",
            "set --tls-cert, or listen on --host 127.0.0.1 behind a proxy that terminates TLS",
        )
    if plan.admin_host is not None and not _is_local(plan.admin_host):
        yield warning(
            "admin-is-public",
            f"the admin port, which requires no API key, listens on {plan.admin_host}",
            "set --admin-host to 127.0.0.1, or make sure that only operators can reach it",
        )


def _is_local(host: str) -> bool:
    return host.startswith(_LOCAL)
