"""The gateway's end of the helper process that talks to Ray."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Sequence

import msgspec

from uncork_workers.ray.messages import (
    LONGEST_LINE_BYTES,
    Command,
    Connected,
    Event,
    Refused,
    decode_event,
    encode,
)
from uncork_workers.supervision.processes import describe_exit

HELPER = (sys.executable, "-m", "uncork_workers.ray")
_CLOSE_S = 5.0
_LAST_LINES = 20


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
