"""Users for locust: a closed loop, and one that runs the open loop inside locust.

    locust -f loadtests/locustfile.py --host http://127.0.0.1:3000 --headless -u 64 -t 30s --path /predict
    locust -f loadtests/locustfile.py --host http://127.0.0.1:3000 --headless --rate 500 --seconds 30

The open loop runs in generator processes of its own, which gevent cannot delay, and reports every request to
locust. Distributed, every locust worker with an OpenLoopUser runs its share of one schedule: start as many
users (-u) as workers. A run is void if a generator fell behind; the exit code is then 1.
"""

import logging
from argparse import ArgumentParser
from itertools import count
from typing import Any

import gevent
import numpy as np
from gevent.queue import Queue
from locust import FastHttpUser, User, constant, events, task
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import MasterRunner, WorkerRunner
from locust.stats import CSV_STATS_INTERVAL_SEC

from uncork_loadtests.generator.fleet import generators
from uncork_loadtests.generator.process import samples_of
from uncork_loadtests.generator.samples import Samples, latencies_s, measured, void_reason
from uncork_loadtests.locust.options import (
    add_options,
    is_open,
    payload_of,
    plan_of,
    report,
)
from uncork_loadtests.servers import BenchError
from uncork_loadtests.traffic.payloads import same_answer
from uncork_loadtests.traffic.plan import Payload

log = logging.getLogger("uncork.locust")

# Messages between master and workers: a user is ready, its share, a problem, the share is done.
_HERE, _SHARE, _PROBLEM, _DONE = "uncork_here", "uncork_share", "uncork_problem", "uncork_done"
# Requests reported to locust before other greenlets run.
_AT_A_TIME = 200


class ClosedLoopUser(FastHttpUser):
    """Posts the bodies in turn, waits for each response, compares it, and pauses."""

    _payload: Payload | None = None
    """Made once for all users of the process."""
    _numbers = count()

    def on_start(self) -> None:
        if self._payload is None:
            type(self)._payload = payload_of(self.environment.parsed_options)

    def wait_time(self) -> float:
        return float(self.environment.parsed_options.think_ms) / 1000

    @task
    def ask(self) -> None:
        options: Any = self.environment.parsed_options
        payload = self._payload
        assert payload is not None
        place = next(self._numbers) % len(payload.bodies)
        headers = {"Content-Type": options.content_type}
        with self.client.post(
            options.path,
            data=payload.bodies[place],  # type: ignore[arg-type]  # bytes are passed on as they are
            headers=headers,
            catch_response=True,
        ) as response:
            expected = payload.expected
            if response.ok and expected and not same_answer(response.content, expected[place]):
                response.failure("wrong response")


class OpenLoopUser(User):
    """Sends requests on schedule, whatever happens to earlier ones."""

    fixed_count = 1
    wait_time = constant(0)

    @task
    def run_plan(self) -> None:
        """Run this process's share of the plan, once."""
        index, of = _share(self.environment)
        options: Any = self.environment.parsed_options
        seen: list[Samples] = []
        problem = ""
        try:
            plan = plan_of(options, host=self.environment.host, locusts=of)
            shares = range(index * options.generators, (index + 1) * options.generators)
            with generators(plan, shares, stream=True) as fleet:
                for _, frame in fleet.frames():
                    samples = samples_of(frame)
                    seen.append(samples)
                    _fire(self.environment, measured(samples), path=options.path)
        except (ValueError, BenchError) as error:
            problem = str(error)
        finally:  # also when locust ends it early
            void = void_reason(np.concatenate(seen)) if seen else ""
            problem = problem or (f"void: {void}" if void else "")
            _report_problem(self.environment, problem)
        _end(self.environment)
        raise StopUser


def _fire(environment: Environment, samples: Samples, *, path: str) -> None:
    latencies_ms = (latencies_s(samples) * 1000).tolist()
    columns = zip(samples["status"].tolist(), latencies_ms, samples["wrong"].tolist(), strict=True)
    for number, (status, latency_ms, wrong) in enumerate(columns):
        response_time_ms, failure = report(status=status, latency_ms=latency_ms, wrong=wrong)
        environment.events.request.fire(  # type: ignore[no-untyped-call]
            request_type="POST",
            name=path,
            response_time=response_time_ms,
            response_length=0,
            exception=RuntimeError(failure) if failure else None,
            context={},
        )
        if number % _AT_A_TIME == 0:
            gevent.sleep(0)


def _report_problem(environment: Environment, problem: str) -> None:
    """Log the problem, fail this process, and send it to the master."""
    if not problem:
        return
    log.error("%s", problem)
    environment.process_exit_code = 1
    if isinstance(environment.runner, WorkerRunner):
        environment.runner.send_message(_PROBLEM, {"problem": problem})


# The share that the master assigns to this worker.
_assigned: Queue[tuple[int, int]] = Queue()


def _share(environment: Environment) -> tuple[int, int]:
    """Return the index of this process's share, and the number of shares."""
    if not isinstance(environment.runner, WorkerRunner):
        return 0, 1
    while not _assigned.empty():
        _assigned.get()
    environment.runner.send_message(_HERE)
    share: tuple[int, int] = _assigned.get()
    return share


def _end(environment: Environment) -> None:
    """End the test: on a worker, tell the master; elsewhere, once the statistics are written."""
    runner = environment.runner
    if isinstance(runner, WorkerRunner):
        runner._send_stats()  # now, not seconds later
        runner.send_message(_DONE)
    elif runner is not None:
        options: Any = environment.parsed_options
        # Not from this greenlet, which it ends.
        gevent.spawn_later(1.2 * CSV_STATS_INTERVAL_SEC, runner.quit if options.headless else runner.stop)


class _Master:
    """Assigns the shares when all users are ready, and ends the test when all are done."""

    def __init__(self, environment: Environment, runner: MasterRunner) -> None:
        self._environment = environment
        self._runner = runner
        self._reset()
        for name, listener in ((_HERE, self._here), (_PROBLEM, self._problem), (_DONE, self._done)):
            runner.register_message(name, listener)
        environment.events.test_start.add_listener(self._start)  # type: ignore[no-untyped-call]
        environment.events.spawning_complete.add_listener(self._spawned)  # type: ignore[no-untyped-call]

    def _reset(self) -> None:
        self._users: list[str] = []
        self._expected: int | None = None
        self._left = 0

    def _start(self, **_: Any) -> None:
        self._reset()
        for kind in self._open_loops():
            kind.fixed_count = self._runner.worker_count

    def _open_loops(self) -> list[type[User]]:
        return [kind for kind in self._runner.user_classes if issubclass(kind, OpenLoopUser)]

    def _spawned(self, **_: Any) -> None:
        counts = self._runner.target_user_classes_count
        self._expected = sum(counts.get(kind.__name__, 0) for kind in self._open_loops())
        if 0 < self._expected < self._runner.worker_count:
            log.warning(
                "only %d of %d locust workers send requests; set -u to the number of workers",
                self._expected,
                self._runner.worker_count,
            )
        self._assign()

    def _here(self, msg: Any, **_: Any) -> None:
        self._users.append(msg.node_id)
        self._assign()

    def _assign(self) -> None:
        if len(self._users) != self._expected:
            return
        self._left = self._expected
        for index, worker in enumerate(self._users):
            self._runner.send_message(_SHARE, {"index": index, "of": self._expected}, client_id=worker)

    def _problem(self, msg: Any, **_: Any) -> None:
        log.error("%s: %s", msg.node_id, msg.data["problem"])
        self._environment.process_exit_code = 1

    def _done(self, **_: Any) -> None:
        self._left -= 1
        if not self._left:
            _end(self._environment)


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _declare(parser: ArgumentParser, **_: Any) -> None:
    add_options(parser)


@events.init.add_listener  # type: ignore[untyped-decorator]
def _prepare(environment: Environment, runner: Any, **_: Any) -> None:
    """Choose the user class by the options, unless the command line names one."""
    if isinstance(runner, WorkerRunner):
        runner.register_message(_SHARE, lambda msg, **_: _assigned.put((msg.data["index"], msg.data["of"])))
        return
    if isinstance(runner, MasterRunner):
        _Master(environment, runner)
    options: Any = environment.parsed_options
    if set(environment.user_classes) == {ClosedLoopUser, OpenLoopUser} and not options.user_classes:
        environment.user_classes = [OpenLoopUser if is_open(options) else ClosedLoopUser]
    try:
        payload_of(options)
        if is_open(options):
            plan_of(options, host=environment.host)
    except ValueError as error:
        log.error("%s", error)
        raise SystemExit(2) from None
