"""Faults of processes: workers that die or hang, too many requests, new workers on new code."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from random import Random

from benchmarks.chaos.faults import KILL, KILLER, OVERLOAD, RELOAD, STOP
from benchmarks.chaos.ledger import Window
from benchmarks.chaos.stage import Stage

_HEALED_S = 30.0
_LOOKS, _LOOK_S = 8, 2.0
_OVERLOAD_FACTOR, _OVERLOAD_S = 4.0, 5.0
# For the queue to empty, and the estimate to recover.
_AFTER_S = 2.0
_RELOAD_S = 30.0


async def kill(stage: Stage, random: Random) -> None:
    """SIGKILL of a worker, whatever it does; there must soon be another."""
    victims = stage.gateway.workers()
    if not victims:  # all of them are being started again
        return
    victim = random.choice(victims)
    window = stage.ledger.strike(KILL, time.monotonic())
    stage.ledger.injected(KILL)
    _signal(victim, signal.SIGKILL)
    await _healed(stage, window, victim)


async def stop(stage: Stage, random: Random) -> None:
    """SIGSTOP of a worker that is ready; the gateway must kill it when its batch has run too long."""
    victims = await _ready_workers(stage)
    if not victims:
        return
    victim = random.choice(victims)
    window = stage.ledger.strike(STOP, time.monotonic())
    stage.ledger.injected(STOP)
    _signal(victim, signal.SIGSTOP)
    await _healed(stage, window, victim)
    _signal(victim, signal.SIGCONT)


async def killer(stage: Stage, random: Random) -> None:
    """A row that kills its worker: it alone must get 502, and its neighbours their answers."""
    window = stage.ledger.strike(KILLER, time.monotonic())
    stage.ledger.injected(KILLER)
    stage.load.slip_in("die", KILLER)
    await asyncio.sleep(_AFTER_S)
    await _healed(stage, window, None)


async def overload(stage: Stage, random: Random) -> None:
    """More requests than the workers can run."""
    window = stage.ledger.strike(OVERLOAD, time.monotonic())
    stage.ledger.injected(OVERLOAD)
    stage.load.factor = _OVERLOAD_FACTOR
    try:
        await asyncio.sleep(_OVERLOAD_S)
    finally:
        stage.load.factor = 1.0
    await asyncio.sleep(_AFTER_S)
    window.close(time.monotonic())


async def reload(stage: Stage, random: Random) -> None:
    """New workers take over, by signal or by command; nobody may notice."""
    window = stage.ledger.strike(RELOAD, time.monotonic())
    stage.ledger.injected(RELOAD)
    if random.random() < 0.5:
        os.kill(stage.gateway.pid, signal.SIGHUP)
        await asyncio.sleep(_AFTER_S)
    else:
        await _reload_by_command(stage)
    window.close(time.monotonic())


async def _reload_by_command(stage: Stage) -> None:
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
        stage.ledger.complain(RELOAD.name, f"uncork reload did not end within {_RELOAD_S:g} s")
        return
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    # 1 says that the old workers go on: a new one may have been killed before it could take over.
    if process.returncode not in (0, 1):
        stage.ledger.complain(
            RELOAD.name, f"uncork reload ended with {process.returncode}: {said.decode()[-300:]}"
        )


async def _ready_workers(stage: Stage) -> list[int]:
    """All workers, once none of them is being started; none if there is always one that is."""
    known = stage.gateway.workers()
    for _ in range(_LOOKS):
        are_ready = await stage.gateway.all_ready(within_s=_LOOK_S)
        now = stage.gateway.workers()
        # Processes that are to take over live beside those from which they do.
        if are_ready and now == known and len(now) == stage.gateway.size:
            return now
        known = now
    return []


async def _healed(stage: Stage, window: Window, victim: int | None) -> None:
    """Wait until there are as many workers as before; the fault is felt no longer then."""
    if not await stage.gateway.all_ready(without=victim, within_s=_HEALED_S):
        fault = window.fault
        left = "" if victim is None else f"; worker {victim} was struck"
        stage.ledger.complain(fault.name, f"not all workers were ready again after {_HEALED_S:g} s{left}")
    window.close(time.monotonic())


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
