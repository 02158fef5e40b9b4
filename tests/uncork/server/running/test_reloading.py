"""What a reload does, in which order, and when it does nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.loops import until
from uncork.config.changes import Change, Effect, needing
from uncork.config.errors import WrongUsage
from uncork.server.control_socket import Outcome
from uncork.server.credentials import read_credentials, read_worker_credentials
from uncork.server.options import ServeOptions
from uncork.server.running import reloading
from uncork.server.running.reloading import Reloader
from uncork.server.running.service import RunningServer, RunningService
from uncork_gateway import Gateway
from uncork_gateway.repository import NotLoaded
from uncork_workers.supervision.supervisor import ReplacementFailed

AT_ONCE = Change("max_queue_rows", "5", "6", Effect.AT_ONCE)
NEW_WORKERS = Change("target", "a.py:A", "b.py:B", Effect.NEW_WORKERS)
RESTART = Change("port", "3000", "3001", Effect.RESTART)


class Service:
    def __init__(self) -> None:
        self.view = SimpleNamespace(any_ready=True)


class Services:
    def __init__(self) -> None:
        self.services = [Service(), Service()]


class Server:
    """Settings and workers of a server; keeps what is done to it."""

    services: Collection[str] = ("digits", "wine")

    def __init__(self, *changes: Change, workers: int = 2) -> None:
        self.changes: Sequence[Change] = changes
        self.workers = workers
        self.gateway = Services()
        self.unloaded = set[str]()
        self.forgotten: Collection[str] = ()
        self.unloaded_at_read: list[set[str]] = []
        self.done: list[str] = []
        self.fault: Exception | None = None
        self.replacing, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.settling, self.settled = asyncio.Event(), asyncio.Event()
        self.settled.set()
        self.reloader = Reloader(cast(RunningServer, self))
        for name in ("read", "loading", "unloading"):
            setattr(self.reloader, name, getattr(self, name))

    def read(self) -> Server:
        self.done.append("read")
        self.unloaded_at_read.append({*self.unloaded})
        if isinstance(self.fault, WrongUsage):
            raise self.fault
        return self

    async def wake(self, renewed: Collection[str]) -> None:
        """Nothing is asleep."""

    async def check(self) -> None:
        self.done.append("check")
        if isinstance(self.fault, FileNotFoundError):
            raise WrongUsage(str(self.fault))

    def loading(self, name: str) -> Server:
        self.done.append(f"read to load {name}")
        return self

    def unloading(self, name: str) -> Server:
        self.done.append(f"read to unload {name}")
        return self

    def needs_workers(self, renewed: Collection[str]) -> bool:
        return bool(self.workers) and bool(renewed or needing(Effect.NEW_WORKERS, self.changes))

    async def replace(self, renewed: Collection[str]) -> None:
        self.done.append(" ".join(["replace", *renewed]))
        self.replacing.set()
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        self.done.append("take over")

    async def apply(self) -> None:
        if self.fault is not None:
            raise self.fault
        self.done.append("apply")

    async def settle(self) -> None:
        self.settling.set()
        await self.settled.wait()
        self.done.append("settle")


DONE = "reloaded after 0.0 s"
NOTHING = "nothing has changed: "
REPLACED = ["read", "check", "replace", "take over", "settle"]
ALL_REPLACED = ["read", "check", "replace digits wine", "take over", "settle"]


@pytest.mark.parametrize(
    ("changes", "workers", "done", "message"),
    [
        ((), 2, ALL_REPLACED, DONE),
        ((AT_ONCE,), 2, ALL_REPLACED, f"{DONE}; settings changed: max_queue_rows"),
        (
            (AT_ONCE, NEW_WORKERS),
            2,
            ALL_REPLACED,
            f"{DONE}; settings changed: max_queue_rows, target",
        ),
        (
            (AT_ONCE,),
            0,
            ["read", "check", "apply", "settle"],
            "reloaded, the workers keep running; settings changed: max_queue_rows",
        ),
    ],
)
async def test_a_reload_by_request_replaces_the_workers_that_there_are(
    changes: tuple[Change, ...], workers: int, done: list[str], message: str
) -> None:
    on = Server(*changes, workers=workers)
    assert await on.reloader.reload_requested() == Outcome(0, message)
    assert on.done == done


@pytest.mark.parametrize(
    ("changes", "done"),
    [
        ((), ["read", "check"]),
        ((AT_ONCE,), ["read", "check", "apply", "settle"]),
        ((AT_ONCE, NEW_WORKERS), REPLACED),
        ((RESTART, AT_ONCE), ["read"]),
    ],
)
async def test_a_changed_file_replaces_workers_only_if_it_must(
    changes: tuple[Change, ...], done: list[str]
) -> None:
    on = Server(*changes)
    await on.reloader._reload("uncork.toml changed", renewed=())
    assert on.done == done


@pytest.mark.parametrize(
    ("changes", "workers", "fault", "message"),
    [
        ((AT_ONCE,), 2, WrongUsage("workers must be a number"), f"{NOTHING}workers must be a number"),
        (
            (AT_ONCE, RESTART),
            2,
            None,
            f"{NOTHING}port (from 3000 to 3001) needs a restart; restart the server, or restore the value",
        ),
        ((AT_ONCE,), 2, FileNotFoundError("no such interpreter"), f"{NOTHING}no such interpreter"),
        ((AT_ONCE,), 2, ReplacementFailed("no weights"), "the old workers keep running: no weights"),
        ((AT_ONCE,), 2, ValueError("Echo has no API 'predit'"), f"{NOTHING}Echo has no API 'predit'"),
        ((AT_ONCE,), 0, ValueError("Echo has no API 'predit'"), f"{NOTHING}Echo has no API 'predit'"),
    ],
)
async def test_a_reload_that_fails_changes_nothing(
    changes: tuple[Change, ...],
    workers: int,
    fault: Exception | None,
    message: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    on = Server(*changes, workers=workers)
    on.fault = fault
    assert await on.reloader.reload_requested() == Outcome(1, f"failed, {message}")
    assert not {"take over", "apply", "settle"} & set(on.done)
    assert f"uncork reload: reload failed, {message}" in caplog.text


async def test_a_reload_that_fails_says_if_nothing_is_ready() -> None:
    """One ready service of several is enough for the old workers to count as running."""
    on = Server(AT_ONCE)
    on.fault = ReplacementFailed("no weights")
    on.gateway.services[0].view.any_ready = False
    assert (
        await on.reloader.reload_requested()
    ).message == "failed, the old workers keep running: no weights"
    on.gateway.services[1].view.any_ready = False
    assert (await on.reloader.reload_requested()).message == "failed, no worker is ready: no weights"


async def test_a_reload_waits_for_the_one_before() -> None:
    """It reads the settings after that one, so that none is forgotten or applied twice."""
    on = Server(AT_ONCE)
    on.gate.clear()
    first, second = (asyncio.create_task(on.reloader.reload_requested()) for _ in range(2))
    await on.replacing.wait()
    assert on.done == ["read", "check", "replace digits wine"]
    on.gate.set()
    await asyncio.gather(first, second)
    assert on.done == ALL_REPLACED * 2


async def test_a_reload_that_takes_long_says_what_others_wait_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a new worker hangs in its setup."""
    monkeypatch.setattr(reloading, "_LONG_S", 0.0)
    caplog.set_level("INFO")
    on = Server(AT_ONCE)
    on.gate.clear()
    waiting = asyncio.create_task(on.reloader.reload_requested())
    says = reloading._LATE % ("uncork reload", 0)
    await until(lambda: says in caplog.messages)
    on.gate.set()
    await waiting
    assert on.done == ALL_REPLACED


async def test_a_difference_is_reported_without_doing_anything() -> None:
    on = Server(AT_ONCE, RESTART)
    assert await on.reloader.diff_requested() == Outcome(1, "", (AT_ONCE, RESTART))
    on.changes = ()
    assert await on.reloader.diff_requested() == Outcome(0, "")
    on.fault = WrongUsage("no such file")
    assert await on.reloader.diff_requested() == Outcome(2, "no such file")
    on.fault = FileNotFoundError("no such interpreter")
    assert await on.reloader.diff_requested() == Outcome(2, "no such interpreter")
    assert on.done == [*["read", "check"] * 2, "read", "read", "check"]


@pytest.mark.parametrize("workers", [0, 1])
async def test_a_service_that_is_not_described_delays_no_watching(
    monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """It may wait for workers elsewhere, import for minutes, or die each time."""

    class Watcher:
        def __init__(self, files: object) -> None:
            pass

        async def changes(self) -> AsyncGenerator[list[str]]:
            yield ["digits.py"]

    def service(workers: int, *, is_described: bool) -> SimpleNamespace:
        described = asyncio.get_running_loop().create_future()
        if is_described:
            described.set_result(None)
        return SimpleNamespace(
            options=SimpleNamespace(worker_count=SimpleNamespace(most=workers)),
            served=SimpleNamespace(events=SimpleNamespace(described=described)),
        )

    monkeypatch.setattr(reloading, "FileWatcher", Watcher)
    on = Server()
    on.services = {
        "digits": service(1, is_described=True),
        "wine": service(workers, is_described=False),
    }
    watching = asyncio.create_task(on.reloader.watch())
    for _ in range(100):
        await asyncio.sleep(0)

    assert watching.done()
    assert on.done == ALL_REPLACED


async def test_a_server_that_stops_cancels_its_reload() -> None:
    on = Server(AT_ONCE)
    on.gate.clear()
    on.reloader.on_hangup()
    await on.replacing.wait()
    await on.reloader.close()
    assert on.done == ["read", "check", "replace digits wine"]


async def test_a_client_loads_and_unloads_one_service() -> None:
    """Its workers are new; those of the others stay. A reload does not load it again."""
    on = Server(AT_ONCE)
    await on.reloader.load("wine")
    assert on.done == ["read to load wine", "check", "replace wine", "take over", "settle"]
    assert on.reloader.unloaded() == set()
    on.done.clear()
    await on.reloader.unload("wine")
    assert on.done == ["read to unload wine", "check", "apply", "settle"]
    assert on.reloader.unloaded() == {"wine"}
    on.fault = ReplacementFailed("no weights")
    with pytest.raises(NotLoaded, match=r"^failed to load 'wine', the old workers keep running: no weights$"):
        await on.reloader.load("wine")
    on.fault = WrongUsage("no service 'beer' is loaded")
    with pytest.raises(NotLoaded, match=r"^failed to unload 'beer', nothing has changed: no service 'beer'"):
        await on.reloader.unload("beer")
    assert on.reloader.unloaded() == {"wine"}
    on.fault = None
    await on.reloader.load("wine")
    assert on.reloader.unloaded() == set()


@pytest.mark.parametrize(("before", "after"), [(set(), {"wine"}), ({"wine"}, set())])
async def test_a_reload_that_waits_for_a_client_keeps_what_it_has_changed(
    before: set[str], after: set[str]
) -> None:
    """Otherwise it would start what was unloaded, and stop what was loaded."""
    on = Server(AT_ONCE)
    on.unloaded |= before
    on.settled.clear()
    changing = asyncio.create_task((on.reloader.load if before else on.reloader.unload)("wine"))
    await on.settling.wait()
    reloading = asyncio.create_task(on.reloader.reload_requested())
    on.settled.set()
    await asyncio.gather(changing, reloading)
    assert on.unloaded_at_read == [after]


async def as_many_changes_as_may_wait(on: Server) -> list[asyncio.Task[None]]:
    """Begin to load one service, up to the closed gate, and let as many others wait as may."""
    on.gate.clear()
    first = asyncio.create_task(on.reloader.load("a"))
    await on.replacing.wait()
    others = [f"m{number}" for number in range(reloading._MOST_WAITING)]
    changes = [first, *[asyncio.create_task(on.reloader.load(name)) for name in others]]
    await asyncio.sleep(0)
    return changes


async def test_a_client_cannot_make_the_operator_wait_for_its_changes() -> None:
    """One client's changes in advance would otherwise delay, for example, the end of a key."""
    on = Server(AT_ONCE)
    first, *waiting = await as_many_changes_as_may_wait(on)
    with pytest.raises(NotLoaded, match=r"^failed to load 'one more': 16 changes by clients wait") as refused:
        await on.reloader.load("one more")
    assert refused.value.status == 503
    operator = asyncio.create_task(on.reloader.reload_requested())
    await asyncio.sleep(0)
    on.gate.set()
    await asyncio.gather(first, operator, *waiting)
    begun = [one for one in on.done if one.startswith("read")]
    assert begun[:3] == ["read to load a", "read", "read to load m0"]
    await on.reloader.load("one more")


async def test_changes_of_clients_that_leave_are_dropped_before_they_begin() -> None:
    """They would keep the operator's changes out, which wait in the same line."""
    on = Server(AT_ONCE)
    first, *waiting = await as_many_changes_as_may_wait(on)
    for each in (first, *waiting):
        each.cancel()
    await asyncio.wait(waiting)
    last = asyncio.create_task(on.reloader.unload("a"))
    on.gate.set()
    await last
    assert [one for one in on.done if one.startswith("read")] == ["read to load a", "read to unload a"]


async def test_clients_share_the_last_change_of_a_service_that_waits() -> None:
    on = Server(AT_ONCE)
    on.gate.clear()
    changes = [asyncio.create_task(on.reloader.load("wine"))]
    await on.replacing.wait()
    load, unload = on.reloader.load, on.reloader.unload
    for change in (load, load, unload, unload, load, load):
        changes.append(asyncio.create_task(change("wine")))
        changes.append(asyncio.create_task(change("beer")))
    await asyncio.sleep(0)
    changes[1].cancel()
    on.gate.set()
    await asyncio.gather(*changes[:1], *changes[2:])
    begun = [one.removeprefix("read to ") for one in on.done if one.endswith("wine") and "read" in one]
    assert begun == ["load wine", "load wine", "unload wine", "load wine"]
    assert on.unloaded == set()


def server_of(options: ServeOptions, **more: Any) -> RunningServer:
    """A server whose settings are read, but not applied."""
    nothing: Any = None
    return RunningServer(
        options=options,
        credentials=read_credentials(options),
        gateway=cast(Gateway, Services()),
        settings=nothing,
        folder=nothing,
        failed=nothing,
        **more,
    )


async def test_the_name_that_a_client_sends_forges_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    name = "x\n2026-01-01 ERROR forged" + "x" * 30_000
    reloader = Reloader(server_of(ServeOptions(target=["a.py:A", "b.py:B"])))
    for change in (reloader.load, reloader.unload):
        with pytest.raises(NotLoaded, match="no service 'x"):
            await change(name)
    assert len(caplog.messages) == 2
    assert all(line.isprintable() and len(line) < 600 for line in caplog.messages)


def test_nothing_is_loaded_next_to_a_service_without_a_name() -> None:
    """From one service without a name to several takes a restart."""
    options = ServeOptions(target=["wine.py:Wine"])
    only = SimpleNamespace(options=options, credentials=read_worker_credentials(options, on_ray=False))
    server = server_of(
        replace(options, reread=lambda: ServeOptions(target=["wine=wine.py:Wine", "a.py:Beer"])),
        services={"": cast(RunningService, only)},
    )

    for name in ("beer", "wine"):
        with pytest.raises(WrongUsage, match=rf"^service '{name}' cannot be loaded: the only service has no"):
            Reloader(server).loading(name)


def test_a_worker_port_cannot_lose_its_token() -> None:
    """Otherwise workers would need the former one, until the next start is refused."""
    options = ServeOptions(workers="0", worker_port=7000, worker_token_file=Path("token"))
    server = server_of(replace(options, reread=lambda: replace(options, worker_token_file=None)))
    with pytest.raises(WrongUsage, match=r"^--worker-port requires --worker-token-file, a file with"):
        Reloader(server).read()


async def test_only_a_reload_forgets_unloaded_services_that_are_no_longer_configured() -> None:
    """Otherwise one that is configured again would start, although nothing has changed in between."""
    server = server_of(ServeOptions(target=["wine=wine.py:Wine"]), unloaded={"wine", "beer"})
    revision = Reloader(server).read()
    assert (server.unloaded, revision.forgotten) == ({"wine", "beer"}, {"beer"})
    assert list(revision.services) == []

    on = Server(RESTART)
    on.unloaded |= {"wine", "beer"}
    on.forgotten = {"beer"}
    await on.reloader.diff_requested()
    await on.reloader.reload_requested()
    assert on.unloaded == {"wine", "beer"}
    on.changes = ()
    await on.reloader._reload("uncork.toml changed", renewed=())
    assert on.unloaded == {"wine"}
    on.unloaded.add("beer")
    await on.reloader.reload_requested()
    assert on.unloaded == {"wine"}


@pytest.mark.parametrize("workers", [0, 2])
async def test_a_reload_that_is_in_force_is_completed_although_nobody_waits(workers: int) -> None:
    """Otherwise a removed service would stay for good. The next reload begins after that."""
    on = Server(AT_ONCE, workers=workers)
    on.settled.clear()
    reload = asyncio.create_task(on.reloader.reload_requested())
    await on.settling.wait()
    reload.cancel()
    following = asyncio.create_task(on.reloader.reload_requested())
    for _ in range(100):
        await asyncio.sleep(0)
    assert on.done.count("read") == 1
    on.settled.set()
    await following

    assert reload.cancelled()
    assert on.done.count("settle") == 2
    assert on.done.index("settle") < len(on.done) - 1 - on.done[::-1].index("read")


async def test_the_end_of_the_server_ends_what_completes_a_reload() -> None:
    on = Server(AT_ONCE)
    on.settled.clear()
    reload = asyncio.create_task(on.reloader.reload_requested())
    await on.settling.wait()
    await on.reloader.close()

    assert reload.cancelled()
    assert "settle" not in on.done
