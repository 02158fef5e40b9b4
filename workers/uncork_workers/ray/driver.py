"""The helper process: a Ray driver that starts, watches and kills actors for a gateway.

Ray ends the process of its driver when it loses the cluster's head, and aborts it on some errors, so the
gateway cannot be the driver itself. The actors are detached: they survive this process, and the next helper
finds them by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from uncork_workers.ray import cluster
from uncork_workers.ray.host import Host
from uncork_workers.ray.messages import (
    LONGEST_LINE_BYTES,
    Attach,
    Code,
    Connect,
    Connected,
    Ended,
    Event,
    Kill,
    Launch,
    RayUnusable,
    Refused,
    Started,
    Waiting,
    decode_command,
    encode,
)

_CHECK_EVERY_S = 1.0
_LOOK_EVERY_S = 0.05
# Starting an actor takes a second or two, and longer on a machine that starts many.
_LONG_WAIT_S = 15.0
_ANSWER_S = 5.0
_SILENT = "the Ray cluster does not answer"


def main() -> int:
    """Serve the gateway at the other end of stdin and stdout until it closes stdin."""
    # Ray prints on stdout.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    asyncio.run(_serve(out))
    return 0


async def _serve(out: BinaryIO) -> None:
    lines = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    connect = decode_command(await lines.readline())
    assert isinstance(connect, Connect)
    connected = threading.Event()
    threading.Thread(target=_exit_with_gateway, args=(os.getppid(), connected), daemon=True).start()
    try:
        here, other_machines = cluster.connect(connect.address)
    except RayUnusable as error:
        out.write(encode(Refused(str(error))))
        return
    connected.set()
    driver = Driver(connect.gateway, out)
    out.write(encode(Connected(here, other_machines)))
    reading = asyncio.create_task(driver.obey(lines))
    watching = asyncio.create_task(driver.watch_waiting())
    lost = asyncio.create_task(driver.lost.wait())
    ended, _ = await asyncio.wait([reading, watching, lost], return_when=asyncio.FIRST_COMPLETED)
    fault = next(filter(None, (task.exception() for task in ended)), None)
    if lost in ended or (fault is not None and not cluster.is_connected()):
        out.write(encode(Refused("the connection to the Ray cluster is lost")))
    elif fault is not None:  # the workers continue, and the next helper finds them
        out.write(encode(Refused(f"a call of Ray failed: {cluster.one_line(fault)}")))
    else:
        with contextlib.suppress(Exception):  # the cluster is gone
            driver.kill_all()
    # Without Ray's shutdown and threads, which may wait for a head that is gone. All actors are detached.
    os._exit(0)


def _exit_with_gateway(gateway: int, connected: threading.Event) -> None:
    """End this process if the gateway ends before Ray is connected, which may block for ever."""
    while not connected.wait(_CHECK_EVERY_S):
        if os.getppid() != gateway:
            os._exit(0)


class Driver:
    """The actors of one gateway.

    Attributes:
        lost: set when the connection to the cluster is lost.
    """

    def __init__(self, gateway: str, out: BinaryIO) -> None:
        self._gateway = gateway
        self._out = out
        self._actors: dict[int, Any] = {}
        """The actors that have not ended, by launch."""
        self._pending: dict[int, tuple[float, Mapping[str, float]]] = {}
        """Launches whose actors do not run yet: since when, and what they need."""
        self._codes: dict[str, Any] = {}
        """A reference to the last archive in Ray's object store, by digest."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking: asyncio.Task[str] | None = None
        """Asks the cluster for its resources, which takes minutes if it cannot be reached."""
        self.lost = asyncio.Event()

    async def obey(self, lines: asyncio.StreamReader) -> None:
        """Carry out the gateway's commands until it closes the pipe."""
        while line := await lines.readline():
            match decode_command(line):
                case Launch() as command:
                    await self._launch(command)
                case Attach() as command:
                    self._attach(command)
                case Kill(launch=launch):
                    self._kill(launch)

    def kill_all(self) -> None:
        """Kill all actors, and wait until the cluster knows: Ray sends kills in the background.

        Waits as long as the gateway lets this process run.
        """
        for actor in self._actors.values():
            cluster.kill(actor)
        for launch in self._actors:
            while cluster.find_actor(self._name(launch)) is not None:
                time.sleep(_LOOK_EVERY_S)

    async def watch_waiting(self) -> None:
        """Report the launches for which Ray has no room, whenever they or the resources have changed."""
        reported = Waiting([])
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            now = time.monotonic()
            late = {
                launch: needs
                for launch, (since, needs) in self._pending.items()
                if now - since > _LONG_WAIT_S
            }
            reason = ""
            if late:
                reason = await self._why_waiting(next(iter(late.values())))
            waiting = Waiting([launch for launch in late if launch in self._pending], reason)
            if waiting != reported:
                self._send(waiting)
                reported = waiting

    async def _why_waiting(self, needs: Mapping[str, float]) -> str:
        if self._asking is None:
            self._asking = asyncio.create_task(asyncio.to_thread(cluster.why_waiting, needs))
        await asyncio.wait([self._asking], timeout=_ANSWER_S)
        if not self._asking.done():
            return _SILENT
        asked, self._asking = self._asking, None
        return _SILENT if asked.exception() is not None else asked.result()

    async def _launch(self, command: Launch) -> None:
        self._pending[command.launch] = time.monotonic(), command.needs
        try:
            actor = await asyncio.to_thread(self._start_actor, command)
        except Exception as error:
            self._fail(command.launch, error)
            del self._pending[command.launch]
            return
        self._follow(command.launch, actor, command.needs)

    def _start_actor(self, command: Launch) -> Any:
        """Start an actor; blocks while the cluster does not answer."""
        arguments = (command.arguments, command.environment, *self._code(command.code))
        return cluster.start_actor(Host, self._name(command.launch), command.needs, arguments)

    def _code(self, code: Code | None) -> tuple[str, Any]:
        """Return the digest of an archive, and a reference to its content that all nodes can read."""
        if code is None:
            return "", b""
        if code.digest not in self._codes:
            # Ray keeps the one before as long as a launch needs it.
            self._codes = {code.digest: cluster.put(Path(code.archive).read_bytes())}
        return code.digest, self._codes[code.digest]

    def _attach(self, command: Attach) -> None:
        actor = cluster.find_actor(self._name(command.launch))
        if actor is None:
            self._send(Ended(command.launch, reason="was lost while Ray could not be reached"))
        else:
            self._follow(command.launch, actor, command.needs)

    def _kill(self, launch: int) -> None:
        actor = self._actors.get(launch) or cluster.find_actor(self._name(launch))
        if actor is None:
            self._send(Ended(launch, reason="has ended"))
        else:
            cluster.kill(actor)
            if launch not in self._actors:
                self._send(Ended(launch, reason="was killed"))

    def _follow(self, launch: int, actor: Any, needs: Mapping[str, float]) -> None:
        self._actors[launch] = actor
        self._pending.setdefault(launch, (time.monotonic(), needs))
        task = asyncio.create_task(self._watch(launch, actor))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, launch: int, actor: Any) -> None:
        """Report the start and the end of a worker."""
        try:
            node = await cluster.result(actor.node.remote())
            self._pending.pop(launch, None)
            self._send(Started(launch, node))
            code = await cluster.result(actor.wait.remote())
        except Exception as error:
            self._fail(launch, error)
        else:
            self._send(Ended(launch, code=code))
        self._pending.pop(launch, None)
        del self._actors[launch]
        cluster.kill(actor)

    def _fail(self, launch: int, error: Exception) -> None:
        if isinstance(error, ConnectionError) or not cluster.is_connected():
            self.lost.set()
        elif launch in self._pending or launch not in self._actors:
            self._send(Ended(launch, reason=f"could not be started by Ray: {cluster.one_line(error)}"))
        else:
            self._send(Ended(launch, reason=f"was lost: {cluster.one_line(error)}"))

    def _name(self, launch: int) -> str:
        return f"uncork-{self._gateway}-{launch}"

    def _send(self, event: Event) -> None:
        self._out.write(encode(event))
