"""The plan of a check: options of the server, and resources of the machine."""

import os
from collections.abc import Mapping

import psutil

from uncork.cli.check.figures import Plan
from uncork.server.options import ServeOptions
from uncork_workers.cores import usable_cores


def plan_of(options: ServeOptions, *, client_timeout_ms: float | None) -> Plan:
    """Return the plan as far as it is known before a worker starts."""
    return Plan(
        workers=max(1, options.worker_count.most),
        gpus=tuple(options.gpu_names),
        cores=usable_cores(),
        threads=threads_in({**os.environ, **options.variables}),
        free_bytes=psutil.virtual_memory().available,
        max_worker_memory_bytes=options.recycling.memory_bytes,
        max_body_bytes=options.max_body_bytes,
        max_queue_rows=options.max_queue_rows,
        max_queue_bytes=options.max_queue_bytes,
        max_connections=options.max_connections,
        possible_connections=options.most_connections,
        drain_timeout_s=options.drain_timeout,
        host=options.host,
        admin_host=None if options.admin_port is None else options.admin_host,
        has_keys=options.api_key_file is not None,
        has_tls=options.tls_cert is not None,
        client_timeout_ms=client_timeout_ms,
    )


def threads_in(environment: Mapping[str, str]) -> int | None:
    """Return OMP_NUM_THREADS; None if unset, which gives each worker its share of the cores."""
    text = environment.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdecimal() else None
