"""A lasting connection to a Ray cluster: a helper process, and another one whenever it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from uncork_workers.ray.messages import (
    LONGEST_LINE_BYTES,
    Command,
    Connect,
    Connected,
    Event,
    RayUnusable,
    Refused,
    decode_event,
    encode,
)
from uncork_workers.supervision.launcher import backoff_s
from uncork_workers.supervision.processes import describe_exit

log = logging.getLogger("uncork.gateway")

HELPER = (sys.executable, "-m", "uncork_workers.ray")
_CLOSE_S = 5.0
_LAST_LINES = 20
# Ray Client gives up after twice 30 s; Ray itself may try for ever where something else listens.
CONNECT_S = 90.0
"""The longest time that connecting at the start takes."""


class HelperProcess:
    """A running helper process.

    Attributes:
        is_connected: whether it has connected to the cluster.
    """

    def __init__(self, process: Process) -> None:
        self.is_connected = False
        self._process = process
        self._refusal = ""
        self._errors: deque[str] = deque(maxlen=_LAST_LINES)
        """Its last lines on stderr, where Ray prints traces."""
        self._collecting = asyncio.create_task(self._collect_errors())

    @classmethod
    async def start(cls, command: Sequence[str]) -> HelperProcess:
        """Start a helper; raise OSError if that fails."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,  # Ctrl-C in the terminal must reach only the gateway
            limit=LONGEST_LINE_BYTES,
        )
        return cls(process)

    def send(self, command: Command) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(encode(command))

    async def events(self) -> AsyncIterator[Event]:
        """Yield what the helper reports, until it gives up or ends."""
        assert self._process.stdout is not None
        line = b""
        try:
            while not self._refusal and (line := await self._process.stdout.readline()):
                event = decode_event(line)
                if isinstance(event, Refused):
                    self._refusal = event.message
                self.is_connected = self.is_connected or isinstance(event, Connected)
                yield event
        except (ValueError, msgspec.MsgspecError):
            self._refusal = f"the helper process for Ray printed {line!r}"
        except OSError:
            pass  # the pipe broke: the process has ended

    async def end(self) -> str:
        """Let the helper kill its actors and exit, end it if it takes too long; return why it ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _CLOSE_S)
        if self._process.returncode is None:
            self._process.kill()
        code = await self._process.wait()
        await self._collecting
        return self._refusal or self._describe_exit(code)

    async def _collect_errors(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(ValueError, OSError):  # a line over the limit, or a broken pipe
            while line := await self._process.stderr.readline():
                self._errors.append(line.decode(errors="replace").strip())

    def _describe_exit(self, code: int) -> str:
        # Lines of Ray's own log begin with a bracket.
        last = next((line for line in reversed(self._errors) if line and not line.startswith("[")), "")
        how = f"the helper process for Ray {describe_exit(code)}"
        if not self.is_connected and code != 0:
            how = (
                f"{how} while it connected; an address HOST:PORT needs a Ray node on this machine (ray start "
                "--address HOST:PORT --num-cpus 0), ray://HOST:10001 does not"
            )
        return f"{how} ({last})" if last else how


class Connection:
    """Sends commands to a cluster while it is connected.

    Args:
        connect: the first command for each helper.
        on_event: called with what helpers report.
        on_lost: called with the reason whenever there is no connection, after the first one.
    """

    def __init__(
        self,
        connect: Connect,
        command: Sequence[str],
        *,
        on_event: Callable[[Event], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._connect = connect
        self._command = command
        self._on_event = on_event
        self._on_lost = on_lost
        self._helper: HelperProcess | None = None
        self._first: asyncio.Future[Connected] = asyncio.get_running_loop().create_future()
        self._runs: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        return self._helper is not None and self._helper.is_connected

    async def start(self) -> Connected:
        """Connect, and stay connected until :meth:`close`; return what the first helper reports.

        Raises:
            RayUnusable: if that is impossible.
        """
        self._runs = asyncio.create_task(self._keep_helper())
        self._runs.add_done_callback(self._on_failure)
        try:
            async with asyncio.timeout(CONNECT_S):
                return await asyncio.shield(self._first)
        except TimeoutError:
            message = f"{self._connect.address} has not answered within {CONNECT_S:g} s; is it a Ray cluster?"
            raise RayUnusable(message) from None

    def send(self, command: Command) -> None:
        """Send a command; do nothing if there is no helper."""
        if self._helper is not None:
            self._helper.send(command)

    async def close(self) -> None:
        """End the helper, which kills its actors."""
        if self._runs is not None:
            self._runs.cancel()
            await asyncio.gather(self._runs, return_exceptions=True)

    async def _keep_helper(self) -> None:
        failures, last_reason = 0, ""
        while True:
            was_connected, reason = await self._run_helper()
            if not self._first.done():
                self._first.set_exception(RayUnusable(reason))
                return
            failures = 1 if was_connected else failures + 1
            if was_connected or reason != last_reason:
                log.warning("%s; trying again", reason)
            last_reason = reason
            self._on_lost(reason)
            await asyncio.sleep(backoff_s(failures, first_s=0.5, longest_s=15.0))

    def _on_failure(self, runs: asyncio.Task[None]) -> None:
        """Do not let :meth:`start` wait for a task that has failed."""
        error = None if runs.cancelled() else runs.exception()
        if error is not None and not self._first.done():
            self._first.set_exception(RayUnusable(f"the helper process for Ray failed: {error!r}"))

    async def _run_helper(self) -> tuple[bool, str]:
        """Run a helper until it ends; return whether it was connected, and why it ended."""
        try:
            helper = self._helper = await HelperProcess.start(self._command)
        except OSError as error:
            return False, f"the helper process for Ray cannot be started: {error}"
        try:
            helper.send(self._connect)
            async for event in helper.events():
                self._received(event)
        finally:
            self._helper = None
            reason = await helper.end()
        return helper.is_connected, reason

    def _received(self, event: Event) -> None:
        if isinstance(event, Connected):
            if self._first.done():
                log.info("connected to Ray again")
            else:
                self._first.set_result(event)
        self._on_event(event)
