"""The standard streams of a process that serves."""

import errno
import io
import os
import sys
from pathlib import Path
from typing import Any

_READER_GONE = (errno.EPIPE, errno.EIO)


def open_closed_streams() -> None:
    """Open the null device for each standard stream that is closed; call this before anything else is opened.

    Otherwise the next socket or file would get its number, and programs would print into it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def outlive_readers() -> None:
    """Discard output from the time on when nobody can read it, and flush each line of stdout.

    The reader of a pipe may end, and a terminal may close. Neither must fail requests or stop a server.
    """
    if sys.stdout is sys.__stdout__:
        sys.stdout = _outliving(sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _outliving(sys.stderr)


def _outliving(stream: Any) -> Any:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    output: Any = _Output(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )


class _Output(io.FileIO):
    """A pipe, terminal or file that becomes the null device when its reader has gone."""

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _READER_GONE:
                raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        return len(data)
