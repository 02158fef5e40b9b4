"""Reloads by `uncork reload`."""

import asyncio
import contextlib
import sys
from collections.abc import Collection

from benchmarks.chaos.faults import Fault
from benchmarks.chaos.stage import Stage

_RELOAD_S = 30.0


async def reload_by_command(stage: Stage, fault: Fault, *, codes: Collection[int]) -> int | None:
    """Reload; return the exit code, or None after a complaint: it took too long, or has another code."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uncork", "reload", "--port", str(stage.gateway.port)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_RELOAD_S):
            said, _ = await process.communicate()
    except TimeoutError:
        stage.ledger.complain(fault.name, f"uncork reload did not end within {_RELOAD_S:g} s")
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    if process.returncode not in codes:
        stage.ledger.complain(
            fault.name, f"uncork reload ended with {process.returncode}: {said.decode()[-300:]}"
        )
        return None
    return process.returncode
