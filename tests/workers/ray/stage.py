"""A launcher whose helper is the test."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.loops import HANG_S
from uncork_workers.ray import connection
from uncork_workers.ray.code_shipping import Packer
from uncork_workers.ray.launcher import RayLauncher, RayWorkers
from uncork_workers.ray.messages import Command, Connect, Connected, Event, decode_command, encode
from uncork_workers.supervision.launcher import Dialing, backoff_s, over_tcp

LAUNCH_SECRET = b"the secret"
_FAKE = Path(__file__).with_name("fake_helper.py")


class Helper:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def command(self) -> Command | None:
        """Return the next command; None when the launcher has closed the pipe."""
        line = await self._reader.readline()
        return decode_command(line) if line else None

    def send(self, event: Event) -> None:
        self._writer.write(encode(event))

    def say(self, text: str) -> None:
        self._writer.write(text.encode())

    def die(self) -> None:
        self._writer.close()


class Stage:
    def __init__(
        self, folder: Path, *, gpus: float, packer: Packer | None, room_s: float, command: Sequence[str]
    ) -> None:
        self.socket_path = str(folder / "control")
        self.helpers: asyncio.Queue[Helper] = asyncio.Queue()
        self.waiting: list[tuple[list[int], str]] = []
        self._reported = asyncio.Event()
        self.launcher = RayLauncher(
            RayWorkers(
                address="head:6379", target="svc.py:Svc", gpus=gpus, arguments=("--log-level", "info")
            ),
            dialing=self._dialing,
            packer=packer,
            on_waiting=self._on_waiting,
            room_s=room_s,
            command=command or (sys.executable, "-S", "-E", str(_FAKE), self.socket_path),
        )

    def _on_waiting(self, indexes: Sequence[int], reason: str) -> None:
        self.waiting.append((list(indexes), reason))
        self._reported.set()

    def _dialing(self, connected: Connected) -> Dialing:
        return over_tcp(f"{connected.here}:7000", LAUNCH_SECRET)

    async def helper(self) -> Helper:
        helper = await self.helpers.get()
        command = await helper.command()
        assert isinstance(command, Connect)
        assert command.address == "head:6379"
        return helper

    async def connected(self) -> Helper:
        helper = await self.helper()
        helper.send(Connected("10.0.0.1", []))
        return helper

    async def started(self) -> Helper:
        starting = asyncio.create_task(self.launcher.start())
        helper = await self.connected()
        await starting
        return helper

    async def until_waiting(self, indexes: list[int], reason: str) -> None:
        """Wait until these workers are the last reported as waiting."""
        while not self.waiting or self.waiting[-1] != (indexes, reason):
            self._reported.clear()
            await self._reported.wait()


def _soon_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """Return a fiftieth of the delay."""
    return backoff_s(failures, first_s=first_s, longest_s=longest_s) / 50


@asynccontextmanager
async def stage(
    folder: Path,
    *,
    gpus: float = 0.0,
    packer: Packer | None = None,
    room_s: float = 2 * HANG_S,
    command: Sequence[str] = (),
) -> AsyncIterator[Stage]:
    made = Stage(folder, gpus=gpus, packer=packer, room_s=room_s, command=command)

    writers = []

    async def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        made.helpers.put_nowait(Helper(reader, writer))

    server = await asyncio.start_unix_server(came, made.socket_path)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connection, "backoff_s", _soon_s)
            async with asyncio.timeout(HANG_S):
                yield made
    finally:
        await made.launcher.close()
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        server.close()
