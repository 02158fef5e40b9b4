"""What a service has learned about batch times, kept in a file for the next start of the server."""

import asyncio
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from uncork.server.options import ServeOptions
from uncork.server.private_folders import read_private, write_private
from uncork_gateway.service_log import ServiceLog
from uncork_gateway.services.served_service import ServedService
from uncork_workers.wire.dialing import VERSION

_MOST_BYTES = 256 * 1024
_EVERY_S = 60.0

# The bounds also exclude infinity and NaN.
_Rows = Annotated[float, msgspec.Meta(gt=0, le=1e18)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Batches = Annotated[list[tuple[_Rows, _Seconds]], msgspec.Meta(max_length=2)]


class Estimates(msgspec.Struct, frozen=True):
    """The content of a file: (rows, seconds) of up to two batches of each API of a model."""

    model: str
    apis: dict[str, _Batches]
    version: Literal[1] = 1


class KeptEstimates:
    """The file of one service. If anything about it fails, the log says so once, and nothing is recalled.

    It is read and written in threads, because its disk may be slow.

    Attributes:
        options: those of the service now; they name the file, and are part of what a model is.
    """

    def __init__(self, name: str, options: ServeOptions) -> None:
        self._name = name
        self.options = options
        self._found = self._kept = Estimates("", {})
        self._has_failed = False

    async def read(self) -> None:
        """Read the file, if there is one."""
        try:
            self._found = self._kept = await asyncio.to_thread(self._read)
        except FileNotFoundError:
            return
        except (OSError, ValueError, RuntimeError) as error:
            self._failed(error)

    def of(self, model: str) -> Mapping[str, Sequence[tuple[float, float]]]:
        """Return what an earlier run has learned of a model, by API; nothing if it was another model."""
        return self._found.apis if self._found.model == _key(model, self.options) else {}

    async def keep(self, served: ServedService) -> None:
        """Write the file every minute."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.write(served)

    async def write(self, served: ServedService) -> None:
        """Write what the service has learned, unless that is nothing, or in the file already."""
        learned = {api: _rounded(batches) for api, batches in served.learned().items()}
        if not learned or learned == self._kept.apis:
            return
        self._kept = Estimates(_key(served.events.model, self.options), learned)
        try:
            await asyncio.to_thread(self._write, self._kept)
        except (OSError, ValueError, RuntimeError) as error:
            self._failed(error)

    def _read(self) -> Estimates:
        folder, name = self._place()
        content = read_private(folder, name, most_bytes=_MOST_BYTES)
        try:
            return msgspec.json.decode(content, type=Estimates)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"{folder / name} cannot be read: {error}") from None

    def _write(self, estimates: Estimates) -> None:
        content = msgspec.json.encode(estimates)
        if len(content) > _MOST_BYTES:
            raise ValueError(
                f"the estimates of {len(estimates.apis)} APIs take more than {_MOST_BYTES} bytes"
            )
        write_private(*self._place(), content)

    def _place(self) -> tuple[Path, str]:
        """Return the folder and the name of the file; servers of one service in one folder share it."""
        target = self.options.target[0] if self.options.target else ""
        shown = re.sub(r"\W", "_", self._name or target.rpartition(":")[2].lower() or "service")
        place = hashlib.sha256(repr((self._name, target, Path.cwd())).encode()).hexdigest()
        return self.options.state_folder or _usual_folder(), f"{shown[:40]}-{place[:12]}.json"

    def _failed(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            ServiceLog(self._name).warning(
                "batch times must be learned anew after each start: %s. Set --state-folder to a folder of "
                "this user alone, or --no-state",
                error,
            )


def _key(model: str, options: ServeOptions) -> str:
    """Return a digest of all that batch times depend on."""
    parts = VERSION, model, sorted(options.variables.items())
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _usual_folder() -> Path:
    """Return the folder by the XDG Base Directory Specification, by which relative paths are ignored.

    Raises:
        RuntimeError: if this user has no home.
    """
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local/state") / "uncork"


def _rounded(batches: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Round to three digits, so that small changes are none."""
    return [(float(f"{rows:.3g}"), float(f"{seconds:.3g}")) for rows, seconds in batches]
