"""Requests that kill the worker that runs them, while others need one."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.e2e.server import SERVICES, eventually, serving
from tests.loops import HANG_S

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("workers", "killers"), [(2, 1), (4, 3)])
def test_a_worker_is_left_for_others_while_killers_are_retried(workers: int, killers: int) -> None:
    """Each killer costs three workers and gets 502; every other request is answered meanwhile."""
    with (
        serving(f"{SERVICES / 'probe.py'}:Fragile", "--workers", str(workers)) as server,
        httpx.Client(base_url=server.base, timeout=HANG_S) as client,
        ThreadPoolExecutor(killers) as threads,
    ):
        eventually(lambda: server.metric("uncork_workers", state="idle") == workers)
        ends = [threads.submit(client.post, "/echo", json="kill") for _ in range(killers)]
        statuses = []
        while not all(end.done() for end in ends):
            statuses.append(client.post("/echo", json="x").status_code)

        assert set(statuses) == {200}
        assert [end.result().status_code for end in ends] == [502] * killers
        assert server.metric("uncork_batches_total", api="echo", outcome="lost") <= 3 * killers
