"""Workers that nobody launched: which of them serve, in the whole gateway and as a pure function."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.fake_worker import FakeWorker, json_api, service
from tests.gateway.gateway_stage import GatewayStage, problem
from tests.gateway.running import turns
from tests.gateway.services.memory_stage import answered
from tests.gateway.worker_peer import TOKEN, Peer, application, dial
from tests.loops import raise_problems, until
from uncork_gateway import GatewaySettings
from uncork_gateway.backends.worker_connection import Owner, WorkerConnection
from uncork_gateway.backends.worker_listener import WorkerPort
from uncork_gateway.services.joining import choose_successor
from uncork_workers.wire.messages import Failed, Goodbye, Hello, Leaving, Ready, WarmUp
from uncork_workers.wire.overrides import for_all_apis
from uncork_workers.wire.schema import ApiSettings, ServiceDescription

A, B, C = service(json_api("echo"), name="A"), service(json_api("echo"), name="B"), service(name="C")
TAKEN_OVER = Goodbye("workers with another version of the service have taken over")
WRONG = service(json_api(settings=ApiSettings(policy="magic")))


# The choice


def worker(
    serves: ServiceDescription | None, *, standby: bool = True, ready: bool = True
) -> WorkerConnection:
    made = WorkerConnection(cast(Owner, None), standby=standby)
    made.hello = None if serves is None else Hello(index=0, service=serves)
    made.ready = Ready() if ready else None
    return made


@pytest.mark.parametrize("ready", [0, 1, 2, 3])
def test_as_many_ready_successors_as_there_are_workers_take_over(ready: int) -> None:
    serving = [worker(A, standby=False)] * 2 + [worker(A, standby=False, ready=False)]
    others = [worker(B)] * ready + [worker(B, ready=False)] * 3 + [worker(C)]

    assert choose_successor(A, [*serving, *others], [], []) == (B if ready >= 2 else None)


def test_a_superseded_service_takes_over_again_only_when_no_other_has_a_ready_worker() -> None:
    """However many processes have it, and whether or not they were started again."""
    old = [worker(A), worker(A)]
    assert choose_successor(B, [worker(B, standby=False), *old], [A], []) is None
    assert choose_successor(B, [worker(B, standby=False, ready=False), *old], [A], []) == A
    assert choose_successor(B, old, [A], []) == A
    assert choose_successor(B, [*old, worker(C)], [A], []) == C


@given(
    st.lists(
        st.builds(
            worker,
            st.sampled_from([None, A, B, C]),
            standby=st.booleans(),
            ready=st.booleans(),
        ),
        max_size=8,
    ),
    st.lists(st.sampled_from([A, B, C]), max_size=3),
)
def test_a_successor_is_ready_and_not_superseded(
    workers: list[WorkerConnection], superseded: list[ServiceDescription]
) -> None:
    """It never has fewer ready workers than the service in force, and nobody succeeds itself."""
    chosen = choose_successor(A, workers, superseded, [])
    serving = [
        one for one in workers if one.ready and one.hello and one.hello.service == A and not one.standby
    ]
    heirs = [
        one for one in workers if one.ready and one.hello and one.hello.service == chosen and one.standby
    ]
    assert chosen != A
    if chosen is not None:
        assert len(heirs) >= max(1, len(serving))
        assert chosen not in superseded or not serving


# The whole gateway


class Remote(GatewayStage):
    """A gateway with a worker port."""

    def __init__(self, folder: Path, settings: GatewaySettings) -> None:
        super().__init__(folder, settings)
        self.port = socket.create_server(("127.0.0.1", 0))
        self.address = self.port.getsockname()

    async def starting(self, instance: str, serves: ServiceDescription = A) -> FakeWorker:
        """Connect a worker that has described its service."""
        worker, welcome = await dial(self.address, instance=instance)
        self._workers.append(worker)
        worker.send(Hello(index=welcome.index, service=serves, host=instance))
        await worker.delivered()
        await turns(20)
        return worker

    async def remote(self, instance: str, serves: ServiceDescription = A) -> FakeWorker:
        worker = await self.starting(instance, serves)
        worker.send(Ready())
        await worker.delivered()
        await turns(20)
        return worker

    async def launched(
        self, launch: int, *, index: int, serves: ServiceDescription, code: str = ""
    ) -> FakeWorker:
        """Connect a process that the supervisor has started, and that is set up."""
        worker = await self.connect()
        worker.send(Hello(index=index, launch=launch, service=serves, code=code))
        worker.send(Ready())
        await turns(50)
        return worker

    async def answers(self, worker: FakeWorker, path: str = "/echo") -> bool:
        _, reply = await self.echo(worker, path, 1)
        return reply.status_code == 200

    @property
    def in_force(self) -> str | None:
        return self.service.view.server


@contextlib.asynccontextmanager
async def remote_only(folder: Path, **settings: Any) -> AsyncIterator[Remote]:
    """A gateway whose workers all dial in, unless ``workers`` is given."""
    made = Remote(folder, GatewaySettings(**{"workers": 0, **settings}))
    await made.listen()
    made.service.listen_on_tcp(WorkerPort(listener=made.port, token=TOKEN))
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Remote]:
    """A gateway whose workers all dial in."""
    async with remote_only(tmp_path) as made:
        yield made
    raise_problems()


async def test_refused_workers_are_counted(on: Remote) -> None:
    for _ in range(2):
        peer = await Peer.connect(on.address)
        peer.send(application(await peer.challenge(), token=b"another token ..."))
        await peer.refusal()

    metrics = (await on.http.get("/metrics")).text
    assert 'uncork_worker_connections_refused_total{reason="token"} 2.0' in metrics


async def test_another_version_takes_over_when_it_is_complete(on: Remote) -> None:
    """Nothing changes before; then the old workers retire, and stay away while the new ones serve."""
    old = [await on.remote(name) for name in ("a1", "a2")]
    first = await on.remote("b1", B)
    assert on.in_force == "A"
    assert on.service.pool.ready() == {0, 1}
    second = await on.remote("b2", B)
    assert on.in_force == "B"
    for one in old:
        assert await one.dismissed() == TAKEN_OVER
    for name in ("a1", "a2", "a3", "a4"):
        await on.remote(name)
    third = await on.remote("b3", B)
    assert on.in_force == "B"
    for one in (first, second, third):
        asking = [on.post("/echo", 1) for _ in range(1)]
        batch, payload = await one.batch()
        one.answer(batch, [payload])
        assert (await asking[0]).status_code == 200
        one.close()
    await until(lambda: on.in_force == "A")


async def test_what_fits_into_memory_is_learned_anew_for_other_code(on: Remote) -> None:
    """Also on a worker that gets the place of one with old code."""
    old = await on.remote("a")
    await answered(on, old, limit=3.0)
    await on.remote("b", B)
    assert await old.dismissed() == TAKEN_OVER
    new = await on.remote("c", C)
    assert on.in_force == "C"
    assert on.service.pool.ready() == {0}
    [batch] = await answered(on, new)
    assert batch.fits is None


async def test_what_fits_into_memory_is_learned_anew_on_another_machine(on: Remote) -> None:
    """A worker that is started again where the last one was knows it."""
    for host, fits in (("small", None), ("small", 3.0), ("large", None)):
        worker = await on.remote(host)
        assert on.service.pool.ready() == {0}
        [batch] = await answered(on, worker, limit=3.0)
        assert batch.fits == fits
        worker.close()
        await until(lambda: not on.service.pool.ready())


async def test_an_old_worker_answers_what_it_runs_and_a_new_one_what_is_queued(on: Remote) -> None:
    old = await on.remote("a")
    asking = [on.post("/echo", 1)]
    running, payload = await old.batch()
    asking.append(on.post("/echo", 2))
    await turns(50)
    new = await on.remote("b", B)
    batch, queued = await new.batch()
    new.answer(batch, [queued])
    old.answer(running, [payload])

    assert queued == b"2"
    assert [(await one).json() for one in asking] == [1, 2]
    assert await old.dismissed() == TAKEN_OVER


async def test_the_next_version_serves_when_enough_old_workers_leave(on: Remote) -> None:
    """At once, although one of them still runs its batch."""
    busy = await on.remote("a1")
    on.post("/echo", 1)
    await busy.batch()
    idle = await on.remote("a2")
    await on.remote("b", B)
    assert on.in_force == "A"
    busy.send(Leaving())
    assert await idle.dismissed() == TAKEN_OVER
    assert on.in_force == "B"
    assert on.service.pool.ready() == {2}


async def test_old_code_that_is_started_again_stays_behind(on: Remote) -> None:
    """Also if its workers are as many as the new ones; then both versions fail one after the other."""
    await on.remote("a1")
    new = await on.remote("b1", B)
    assert on.in_force == "B"
    again = [await on.remote(name) for name in ("a2", "a3")]
    assert on.in_force == "B"
    new.close()
    await until(lambda: on.in_force == "A")

    await on.remote("b1", B)
    assert on.in_force == "A"
    again.pop().close()
    await until(lambda: on.in_force == "B")


async def test_new_code_that_is_started_while_the_old_one_is_not_ready_is_no_older_for_it(
    on: Remote,
) -> None:
    """Its workers take over again when they are as many."""
    starting = await on.starting("b1", B)
    await on.remote("a1", A)
    assert on.in_force == "A"
    assert await starting.dismissed() == TAKEN_OVER

    await on.remote("b1", B)
    assert on.in_force == "B"


async def test_a_service_that_cannot_be_served_is_logged_and_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither before another one is in force nor later; each is logged once."""
    async with remote_only(tmp_path) as on:
        await on.remote("w1", WRONG)
        await on.remote("w2", WRONG)
        assert not on.service.events.described.done()
        good = await on.remote("a")
        assert await on.answers(good)
        assert on.in_force == "A"
    [error] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "unknown policy 'magic'" in error


async def test_the_host_of_a_worker_forges_no_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with remote_only(tmp_path) as on:
        (await on.remote("x\n2026-01-01 ERROR forged")).close()
        await until(lambda: any("has disconnected" in message for message in caplog.messages))
    assert all(message.isprintable() for message in caplog.messages)


@pytest.mark.parametrize("serves", [A, B])
async def test_a_worker_that_fails_is_a_reason(on: Remote, serves: ServiceDescription) -> None:
    """Until another one is ready."""
    await on.starting("a")
    failing = await on.starting("b", serves)
    failing.send(Failed(1, "setup", "no model"))
    failing.close()
    await until(lambda: {slot.index for slot in on.service.view.slots()} == {0})
    assert "worker 1 failed in setup: no model" in problem(await on.ready(), 503)
    await on.remote("c")
    assert (await on.ready()).status_code == 200


async def test_a_remote_worker_that_cannot_load_its_service_does_not_end_the_gateway(on: Remote) -> None:
    """Others may come."""
    failing, welcome = await dial(on.address, instance="a")
    failing.send(Failed(welcome.index, "load", "no module"))
    await failing.delivered()
    await turns(20)
    failing.close()
    assert not on.service.events.described.done()


async def test_new_code_of_a_restarted_worker_waits_for_the_old_code_to_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its results might have another form than requests were accepted for."""
    async with remote_only(tmp_path, workers=2) as on:
        old, dying = await on.worker(serves=A), await on.worker(serves=A, index=1)
        dying.close()
        new = await on.launched(3, index=1, serves=B)

        assert on.in_force == "A"
        assert on.service.pool.ready() == {0}
        assert caplog.records[-1].getMessage() == (
            "worker 1 stands by: it has another version of the service than the one that is served; `uncork "
            "reload` replaces all workers"
        )
        assert [slot.fault for slot in on.service.view.slots()] == ["", caplog.records[-1].getMessage()]
        assert await on.answers(old)

        old.close()
        await turns(50)
        assert on.in_force == "B"
        assert await on.answers(new)
        # The wait is no part of a start.
        assert on.service.batching.dispatcher.startup_s is None


async def test_of_several_new_versions_the_newest_is_served(tmp_path: Path) -> None:
    """Once the last worker with the old one is gone; workers with the other wait."""
    async with remote_only(tmp_path, workers=3) as on:
        old = await on.worker(serves=A)
        await on.launched(2, index=1, serves=B)
        newest = await on.launched(3, index=2, serves=C)
        old.close()
        await turns(50)

        assert on.in_force == "C"
        assert on.service.pool.ready() == {2}
        assert await on.answers(newest)


async def test_a_restarted_worker_is_replaced_with_the_others(tmp_path: Path) -> None:
    """It was never used; what replaces it is."""
    async with remote_only(tmp_path, workers=2) as on:
        await on.worker(serves=A)
        held = await on.launched(2, index=1, serves=B)
        for index, launch in enumerate((10, 11)):
            await on.standby(launch, index=index, serves=B)
        assert on.service.take_over([10, 11]) == {1, 2}

        await held.dropped()
        assert on.in_force == "B"
        assert on.service.pool.ready() == {0, 1}


async def test_a_restarted_worker_serves_as_soon_as_the_last_other_retires(tmp_path: Path) -> None:
    """Not only when that one has ended its batch."""
    async with remote_only(tmp_path, workers=2) as on:
        retiring = await on.worker(serves=A, index=1)
        new = await on.launched(2, index=0, serves=B)
        running = on.post("/echo", 1)
        batch, payload = await retiring.batch()
        assert on.service.pool.retire_launch(1)
        assert await on.answers(new)

        retiring.answer(batch, [payload])
        assert (await running).status_code == 200


async def test_a_restarted_worker_that_cannot_be_served_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """However often others change. With other settings it is tried again."""
    async with remote_only(tmp_path, workers=1) as on:
        (await on.worker(serves=A)).close()
        await turns(50)
        await on.launched(2, index=0, serves=WRONG)
        starting = await on.starting("a", B)
        starting.send(WarmUp("echo", 1))
        await starting.delivered()
        await turns(20)
        assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1

        overrides = for_all_apis({"policy": "none"})
        on.service.change(on.service.prepare(GatewaySettings(workers=1, overrides=overrides)))
        assert on.service.pool.ready() == {0}


async def test_other_code_is_logged_when_it_enters_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not while it waits: workers do not differ then."""
    async with remote_only(tmp_path, workers=2) as on:
        old = await on.launched(1, index=0, serves=A, code="a")
        await on.launched(2, index=1, serves=B, code="b")
        assert "other code" not in caplog.text
        old.close()
        await turns(50)
        assert "worker 1 was started again with other code" in caplog.text


async def test_a_worker_that_waits_does_not_keep_the_service_awake(tmp_path: Path) -> None:
    """It is no worker that is still starting."""
    stopped: list[int] = []

    async def resize(workers: int) -> None:
        stopped.append(workers)

    async with remote_only(tmp_path, workers=2) as on:
        await on.worker(serves=A)
        await on.launched(2, index=1, serves=B)
        scaling = on.service.follow_traffic(
            least=0, most=2, idle_after_s=1e-9, target=lambda: 2, resize=resize
        )
        await scaling.check()
        assert stopped == [0]


@pytest.mark.parametrize("held_at", [0, 1])
async def test_a_worker_that_is_stopped_while_it_waits_does_not_enter_service(
    tmp_path: Path, held_at: int
) -> None:
    """Nor is it expected again: a service that falls asleep with it wakes up."""
    async with remote_only(tmp_path, workers=2) as on:
        await on.worker(serves=A, index=1 - held_at)
        await on.launched(2, index=held_at, serves=B)
        launches = (2, 1) if held_at == 0 else (1, 2)
        woken = asyncio.Event()
        on.service.batching.dispatcher.workers_on_demand(woken.set)
        assert all(map(on.service.pool.retire_launch, launches))
        await turns(50)

        on.post("/echo", 1)
        await turns(50)
        assert woken.is_set()


async def test_a_restarted_worker_that_waits_may_fail(tmp_path: Path) -> None:
    """It is no standby of a reload, and its end is a reason like any other's."""
    async with remote_only(tmp_path, workers=2) as on:
        await on.worker(serves=A)
        held = await on.launched(2, index=1, serves=B)
        held.send(Failed(1, "setup", "no model"))
        held.close()
        await turns(50)
        on.service.events.worker_exited(1, "exited with code 1")
        assert on.standing_by.empty()
        assert [slot.fault for slot in on.service.view.slots()] == [
            "",
            "worker 1 failed in setup: no model",
        ]


async def test_remote_workers_follow_the_launched_ones(tmp_path: Path) -> None:
    """From their first description on, and when others take over from them."""
    async with remote_only(tmp_path, workers=1) as on:
        early = await on.remote("early", B)
        assert on.in_force == "B"
        await on.worker(serves=A)
        assert on.in_force == "A"
        assert await early.dismissed() == TAKEN_OVER
        same = await on.remote("same", A)
        others = [await on.remote(f"other {number}", B) for number in range(2)]
        assert on.in_force == "A"
        assert on.service.pool.ready() == {0, 1}

        new = await on.standby(9, serves=B)
        on.service.take_over([9])
        assert on.in_force == "B"
        assert await same.dismissed() == TAKEN_OVER
        assert len(on.service.pool.ready()) == 3
        for one in (new, *others):
            asking = on.post("/echo", 1)
            batch, payload = await one.batch()
            one.answer(batch, [payload])
            assert (await asking).status_code == 200
            one.close()
            await turns(20)


async def test_remote_workers_with_other_code_succeed_no_service_that_sleeps(tmp_path: Path) -> None:
    """The next request starts a worker with the code in service."""
    async with remote_only(tmp_path, workers=1) as on:
        await on.worker(serves=A)
        await on.remote("other", B)

        async def resize(workers: int) -> None:
            on.service.pool.retire_launch(1)

        scaling = on.service.follow_traffic(
            least=0, most=1, idle_after_s=1e-9, target=lambda: 1, resize=resize
        )
        await scaling.check()
        await turns(50)
        assert on.service.view.is_from_zero
        assert (on.in_force, on.service.pool.ready()) == ("A", set())


async def test_closing_the_gateway_disconnects_everybody(on: Remote) -> None:
    workers = [await on.remote("a1"), await on.remote("a2"), await on.remote("b", B)]
    peer = await Peer.connect(on.address)
    await peer.challenge()
    await on.gateway.close()
    await peer.closed()
    for one in workers:
        assert await one.dismissed() == Goodbye("the gateway is stopping")
