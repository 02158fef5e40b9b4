"""Faults of processes: dying or hanging workers, overload, reloads."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection
from random import Random

from benchmarks.chaos.faults import HOST, KILL, KILLER, OVERLOAD, PARTITION, RELOAD, STOP, Fault
from benchmarks.chaos.ledger import Window
from benchmarks.chaos.stage import Stage

# Other faults may kill workers while they start, which then start again at growing intervals.
_HEALED_S = 60.0
_LOOKS, _LOOK_S = 8, 2.0
_OVERLOAD_FACTOR, _OVERLOAD_S = 4.0, 5.0
# For the queue to drain and the estimate to recover.
_AFTER_S = 2.0
_CUT_OFF_S = (3.0, 15.0)
# A cut that ends before it was noticed shows up to this much later.
_UNNOTICED_S = 12.0
_RELOAD_S = 30.0


async def kill(stage: Stage, random: Random) -> None:
    """SIGKILL of a worker; it must be replaced."""
    victims = stage.gateway.workers()
    if not victims:  # all of them are starting
        return
    victim = random.choice(victims)
    window = stage.ledger.strike(KILL, time.monotonic())
    _signal(victim, signal.SIGKILL)
    await _healed(stage, window, victim)


async def stop(stage: Stage, random: Random) -> None:
    """SIGSTOP of a ready worker; the gateway must kill it when its batch exceeds the time limit."""
    victims = await _ready_workers(stage)
    if not victims:
        return
    victim = random.choice(victims)
    window = stage.ledger.strike(STOP, time.monotonic())
    _signal(victim, signal.SIGSTOP)
    await _healed(stage, window, victim)
    _signal(victim, signal.SIGCONT)


async def host(stage: Stage, random: Random) -> None:
    """SIGKILL of all workers of a host, within milliseconds; they are started again."""
    hosts = stage.gateway.hosts
    assert hosts is not None
    victims = hosts.pids(random.choice(hosts.names))
    window = stage.ledger.strike(HOST, time.monotonic())
    for victim in victims:
        _signal(victim, signal.SIGKILL)
        await asyncio.sleep(random.uniform(0.001, 0.02))
    await _healed(stage, window, victims[-1] if victims else None)


async def partition(stage: Stage, random: Random) -> None:
    """Cut a host off, for a time in which the gateway notices that or not; its workers must come back."""
    hosts = stage.gateway.hosts
    assert hosts is not None
    name = random.choice(hosts.names)
    window = stage.ledger.strike(PARTITION, time.monotonic())
    hosts.network.part(name)
    await asyncio.sleep(random.uniform(*_CUT_OFF_S))
    hosts.network.heal(name)
    # A worker that has lost the gateway dials again at most 15 s later.
    await asyncio.sleep(_UNNOTICED_S)
    await _healed(stage, window, None)


async def killer(stage: Stage, random: Random) -> None:
    """A row that kills its worker: it must get 502, its neighbours their answers."""
    window = stage.ledger.strike(KILLER, time.monotonic())
    stage.load.slip_in("die", KILLER)
    await asyncio.sleep(_AFTER_S)
    await _healed(stage, window, None)


async def overload(stage: Stage, random: Random) -> None:
    """More requests than the workers' capacity."""
    window = stage.ledger.strike(OVERLOAD, time.monotonic())
    stage.load.factor = _OVERLOAD_FACTOR
    try:
        await asyncio.sleep(_OVERLOAD_S)
    finally:
        stage.load.factor = 1.0
    await asyncio.sleep(_AFTER_S)
    window.close(time.monotonic())


async def reload(stage: Stage, random: Random) -> None:
    """A reload by signal or command; no request may be affected."""
    window = stage.ledger.strike(RELOAD, time.monotonic())
    if random.random() < 0.5:
        os.kill(stage.gateway.pid, signal.SIGHUP)
        await asyncio.sleep(_AFTER_S)
    else:
        # 1: the old workers stay, because a new one was killed before it was ready.
        await reload_by_command(stage, RELOAD, codes={0, 1})
    window.close(time.monotonic())


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


async def _ready_workers(stage: Stage) -> list[int]:
    """Return all workers once none is starting; empty if that does not happen."""
    known = stage.gateway.workers()
    for _ in range(_LOOKS):
        are_ready = await stage.gateway.all_ready(within_s=_LOOK_S)
        now = stage.gateway.workers()
        # During a reload old and new workers coexist.
        if are_ready and now == known and len(now) == stage.gateway.size:
            return now
        known = now
    return []


async def _healed(stage: Stage, window: Window, victim: int | None) -> None:
    """Wait until all workers are ready, then close the window."""
    if not await stage.gateway.all_ready(without=victim, within_s=_HEALED_S):
        fault = window.fault
        left = "" if victim is None else f"; worker {victim} was killed or stopped"
        stage.ledger.complain(fault.name, f"not all workers were ready again after {_HEALED_S:g} s{left}")
    window.close(time.monotonic())


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
