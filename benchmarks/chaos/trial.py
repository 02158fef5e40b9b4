"""One run: load, strikes, the gateway's resources before and after, and the drain."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import count
from random import Random
from statistics import median
from typing import Any

import psutil

from benchmarks.chaos import client_faults, other_service, processes
from benchmarks.chaos.faults import DRAIN, Strike
from benchmarks.chaos.gateway import Gateway, Possessions, bug_lines
from benchmarks.chaos.grpc import call_faults
from benchmarks.chaos.ledger import NO_FAULT, Ledger
from benchmarks.chaos.load import Load
from benchmarks.chaos.stage import TIMEOUT_S, Injector, Stage
from benchmarks.chaos.waiting import comes_true
from benchmarks.harness.trends import SETTLED_AFTER, Series, thinned
from uncork_loadtests.servers import BenchError

INJECTORS: Mapping[str, Injector] = {
    "kill": processes.kill,
    "stop": processes.stop,
    "killer": processes.killer,
    "overload": processes.overload,
    "reload": processes.reload,
    "services": other_service.come_and_go,
    "host": processes.host,
    "partition": processes.partition,
    "poison": client_faults.poison,
    "leave": client_faults.leave,
    "slow": client_faults.slow,
    "malformed": client_faults.malformed,
    "oversized": client_faults.oversized,
    "cancel": call_faults.cancel,
    "timeout": call_faults.timeout,
    "shut": call_faults.shut,
    "frames": call_faults.broken_frames,
}
DRAIN_TIMEOUT_S = 10.0
_WARM_UP_S = 2.0
_READY_S = 60.0
_AT_REST_S = 15.0
_BEFORE_DRAIN_S = 1.0
# Exit time of a process besides the drain.
_EXIT_S = 5.0
_MEMORY_AFTER_S = 60.0
_MEMORY_SAMPLES = 8
_MEMORY_GROWTH = 0.10


class Trial:
    """Runs a plan against a gateway; results are in the ledger and in :attr:`notes`."""

    def __init__(self, gateway: Gateway, *, rate: float, seed: int, tell: Callable[[str], None]) -> None:
        self._gateway = gateway
        self._tell = tell
        self.ledger = Ledger(timeout_s=TIMEOUT_S)
        self._numbers = count(1)
        self._load = Load(
            self.ledger,
            port=gateway.port,
            rate=rate,
            seed=seed,
            numbers=self._numbers,
            grpc_port=gateway.grpc_port,
        )
        self.notes: list[str] = []
        self.series: Series = {}
        """Resources and latency under load."""

    async def run(self, strikes: Sequence[Strike], *, seconds: float, drain: bool) -> None:
        """Run the plan, compare the gateway's resources with those before, and drain it.

        Raises:
            BenchError: if the gateway does not start, or ends early.
            CancelledError: on SIGTERM.
        """
        # If a signal handler raises an exception, it may do so inside a callback of gRPC, which drops it.
        own_task = asyncio.current_task()
        assert own_task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, own_task.cancel)
        sweeping = asyncio.create_task(self._sweep())
        try:
            await self._while_watched(self._load_and_rest(strikes, seconds=seconds))
            if drain:
                await self._drain()
        finally:
            sweeping.cancel()
        self.notes.append(f"Requests: {_kinds(self.ledger)}.")
        for line in bug_lines(self._gateway.server):
            self.ledger.complain(NO_FAULT, f"the gateway's log says: {line}")

    async def _while_watched(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` while the gateway is alive."""
        watching, working = asyncio.create_task(self._gateway.watch()), asyncio.create_task(work)
        tasks = {watching, working}
        if self._gateway.hosts is not None:
            tasks.add(asyncio.create_task(self._gateway.hosts.keep_alive()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _load_and_rest(self, strikes: Sequence[Strike], *, seconds: float) -> None:
        before = await self._warm_up()
        await self._under_load(strikes, seconds=seconds)
        await self._at_rest(before)

    async def _warm_up(self) -> Possessions:
        self._tell("warming up")
        loading = asyncio.create_task(self._load.run())
        await asyncio.sleep(_WARM_UP_S)
        await self._quiet(loading)
        if not await self._gateway.all_ready(within_s=_READY_S):
            raise BenchError(f"not all workers became ready:\n{self._gateway.server.last_words()}")
        return self._gateway.possessions()

    async def _under_load(self, strikes: Sequence[Strike], *, seconds: float) -> None:
        stage = Stage(gateway=self._gateway, ledger=self.ledger, load=self._load, numbers=self._numbers)
        start_s = time.monotonic()
        loading = asyncio.create_task(self._load.run())
        async with asyncio.TaskGroup() as injections:
            for strike in strikes:
                await self._until(start_s + strike.at_s, start_s=start_s, seconds=seconds)
                injections.create_task(self._inject(strike, stage))
            await self._until(start_s + seconds, start_s=start_s, seconds=seconds)
        self._judge_memory(start_s, time.monotonic())
        self.series = self._measured(start_s, time.monotonic())
        await self._quiet(loading)

    async def _until(self, when_s: float, *, start_s: float, seconds: float) -> None:
        while (now_s := time.monotonic()) < when_s:
            ledger = self.ledger
            self._tell(
                f"{now_s - start_s:.0f} of {seconds:g} s: {ledger.sent:,} requests, "
                f"{ledger.lost} lost, {ledger.wrong} wrong"
            )
            await asyncio.sleep(min(when_s - now_s, 0.5))

    async def _inject(self, strike: Strike, stage: Stage) -> None:
        try:
            await INJECTORS[strike.fault.name](stage, Random(strike.seed))
        except OSError as error:
            self.ledger.complain(strike.fault.name, f"the gateway could not be reached: {error!r}")

    async def _quiet(self, loading: asyncio.Task[None]) -> None:
        """End the load and wait until every request is answered or lost."""
        self._load.stop()
        await loading
        await comes_true(lambda: not self.ledger.outstanding)
        await self._load.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.ledger.sweep(time.monotonic())

    async def _at_rest(self, before: Possessions) -> None:
        self._tell("checking resources")
        await self._gateway.all_ready(within_s=_AT_REST_S)
        gave_back = await comes_true(
            lambda: _gave_back(self._gateway.possessions(), before), within_s=_AT_REST_S, every_s=0.1
        )
        after = self._gateway.possessions()
        if not gave_back:
            self.ledger.complain(NO_FAULT, f"resources leaked; before the load: {before}; after it: {after}")
        self.notes.append(f"Before the load: {before}; after it: {after}.")

    def _judge_memory(self, start_s: float, end_s: float) -> None:
        lasts_s = end_s - start_s
        after_s = min(max(_MEMORY_AFTER_S, SETTLED_AFTER * lasts_s), lasts_s / 2)
        first = [usage.memory_bytes for usage in self._gateway.usage if usage.at_s >= start_s + after_s]
        early, late = median(first[:_MEMORY_SAMPLES]), median(first[-_MEMORY_SAMPLES:])
        growth = late / early - 1
        is_judged = lasts_s >= 2 * _MEMORY_AFTER_S
        when = f"after {after_s:.0f} s" if is_judged else "half-way (the run is too short to judge growth)"
        note = f"resident memory of the gateway {early / 1e6:.1f} MB {when}, {late / 1e6:.1f} MB at the end"
        self.notes.append(f"{note[0].upper()}{note[1:]} ({growth:+.1%}).")
        if is_judged and growth > _MEMORY_GROWTH:
            self.ledger.complain(NO_FAULT, note)

    def _measured(self, start_s: float, end_s: float) -> Series:
        usage = [one for one in self._gateway.usage if start_s <= one.at_s <= end_s]
        answered = [(at_s, 1000 * took_s) for at_s, took_s in self.ledger.undisturbed if at_s >= start_s]
        measured: Mapping[str, Sequence[tuple[float, float]]] = {
            "memory, MB": [(one.at_s, one.memory_bytes / 1e6) for one in usage],
            "file descriptors": [(one.at_s, one.files) for one in usage],
            "threads": [(one.at_s, one.threads) for one in usage],
            "latency without faults, ms": answered,
        }
        return {
            name: thinned((at_s - start_s, value) for at_s, value in points)
            for name, points in measured.items()
        }

    async def _drain(self) -> None:
        """SIGTERM under load: accepted requests are answered, later ones refused, no process remains."""
        self._tell("draining")
        loading = asyncio.create_task(self._load.run())
        await asyncio.sleep(_BEFORE_DRAIN_S)
        workers = self._gateway.workers()
        self._load.draining = True
        self.ledger.strike(DRAIN, time.monotonic())
        signalled_s = time.monotonic()
        os.kill(self._gateway.pid, signal.SIGTERM)
        code = await self._exit_code(within_s=DRAIN_TIMEOUT_S + _EXIT_S)
        took_s = time.monotonic() - signalled_s
        await self._quiet(loading)
        if code != 0:
            self.ledger.complain(DRAIN.name, f"the gateway ended with {code} {took_s:.1f} s after SIGTERM")
        left = [pid for pid in workers if psutil.pid_exists(pid)]
        if left and self._gateway.hosts is None:
            self.ledger.complain(DRAIN.name, f"workers {left} survived the gateway")
        self.notes.append(f"Exit code {code}, {took_s:.1f} s after SIGTERM; workers left: {len(left)}.")

    async def _exit_code(self, *, within_s: float) -> int | None:
        server = self._gateway.server
        await comes_true(lambda: server.exit_code() is not None, within_s=within_s)
        return server.exit_code()


def _kinds(ledger: Ledger) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in ledger.kinds.most_common())


def _gave_back(now: Possessions, then: Possessions) -> bool:
    return all(have <= had for have, had in zip(now, then, strict=True))
