"""Identical requests at one time run once, and nothing that differs is taken for identical."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.gateway.client import JSON, Client, Reply
from tests.gateway.exposed import registry_of
from tests.gateway.running import turns
from tests.gateway.stage import RULES, Stage, detail, reason
from uncork_dispatcher import ApiRules, RequestExpired, RequestResult, RequestShed, Submission
from uncork_dispatcher.actions import ShedReason
from uncork_dispatcher.requests.batch import Batch
from uncork_gateway.codecs import Marshalled, codec_of, grouping
from uncork_gateway.codecs.cost import Cost
from uncork_gateway.codecs.parts import divided
from uncork_gateway.dialects import V2, Native, Rest
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.dialects.inputs import ANY_INPUTS
from uncork_gateway.headers import Header
from uncork_gateway.requests.classes import Classes
from uncork_gateway.requests.coalescing import CoalescedRequest, Coalescing
from uncork_gateway.requests.parts import submission_of, submit
from uncork_gateway.requests.shadow import Shadow, ShadowTally
from uncork_gateway.telemetry.metrics import ApiTally
from uncork_workers.wire.schema import CSV, NPY, ApiDescription

KEY = (b"Authorization", b"Bearer one")


class Coalesced:
    """A stage whose API coalesces, and whose clock a test moves."""

    def __init__(self, *, rules: ApiRules = RULES, **arguments: Any) -> None:
        self.now = 100.0
        self.stage = Stage(rules=rules, clock=lambda: self.now, **arguments)
        route = self.stage.route
        self.coalescing = route.coalescing = Coalescing(
            self.stage.dispatcher, rules, lambda bulk: route.tally_of(bulk), lambda: self.now
        )
        self.runner = self.stage.runner

    async def send(self, body: bytes, *headers: Header) -> asyncio.Task[Reply | None]:
        task = self.stage.post(Client(body, headers=[JSON, *headers]))
        await turns()
        return task

    async def occupy(self) -> asyncio.Task[Reply | None]:
        """Let the worker run something else until the gate opens."""
        self.runner.gate.clear()
        return await self.send(b'"other"')

    @property
    def coalesced(self) -> float | None:
        name, labels = "uncork_coalesced_requests_total", {"api": "echo"}
        return registry_of(self.stage.metrics).get_sample_value(name, labels)

    @property
    def ran(self) -> list[bytes]:
        """The bodies of everything that ran, but for :meth:`occupy`."""
        return [body for batch in self.runner.batches for body in batch if body != b'"other"']

    async def replies(self, *tasks: asyncio.Task[Reply | None]) -> list[Reply]:
        self.runner.gate.set()
        found = await asyncio.gather(*tasks)
        assert (self.coalescing.requests, self.coalescing.size_bytes) == (0, 0)
        return [reply for reply in found if reply is not None]


async def test_requests_join_an_identical_one_that_is_queued_or_running() -> None:
    on = Coalesced()
    other = await on.occupy()
    queued = [await on.send(b"[1]") for _ in range(3)]
    on.runner.gate.set()
    await other
    on.runner.gate.clear()
    await turns()
    queued += [await on.send(b"[2]"), await on.send(b"[2]")]
    replies = await on.replies(*queued)
    assert [reply.body for reply in replies] == [b"[1]"] * 3 + [b"[2]"] * 2
    assert on.ran == [b"[1]", b"[2]"]
    assert len({reply.headers["x-batch-id"] for reply in replies[:3]}) == 1
    assert {reply.headers["x-batch-size"] for reply in replies} == {"1"}
    assert (on.coalesced, on.stage.counted(200)) == (3, 6)


async def test_a_request_to_code_loaded_again_does_not_get_the_result_of_older_code() -> None:
    on = Coalesced()
    other = await on.occupy()
    tasks = [other, await on.send(b"[1]")]
    on.coalescing.start_over(RULES)
    tasks += [await on.send(b"[1]"), await on.send(b"[1]")]
    assert {reply.body for reply in (await on.replies(*tasks))[1:]} == {b"[1]"}
    assert (on.ran, on.coalesced) == ([b"[1]", b"[1]"], 1)


async def test_each_reply_has_its_own_time_in_the_queue() -> None:
    on = Coalesced()
    other = await on.occupy()
    tasks = [other, await on.send(b"[1]")]
    on.now += 1
    tasks.append(await on.send(b"[1]"))
    on.now += 1
    on.runner.gate.set()
    await other
    on.runner.gate.clear()
    on.now += 1
    tasks.append(await on.send(b"[1]"))
    timings = [reply.headers["server-timing"].split(",")[0] for reply in await on.replies(*tasks)]
    assert timings[1:] == ["queue;dur=2000.00", "queue;dur=1000.00", "queue;dur=0.00"]


API = ApiDescription(name="echo", route="/", input={"kind": "json"}, group_by="header:x-lang")
GROUPED: dict[str, Any] = {"codec": codec_of(API), "grouping": grouping(API)}


def v2(*, name: str = "x", data: Any = (1,), **more: Any) -> bytes:
    tensor = {"name": name, "datatype": "INT64", "shape": [1, 1], "data": data}
    return msgspec.json.encode({"inputs": [tensor], **more})


def of_table() -> Coalesced:
    return Coalesced(input={"kind": "dataframe", "columns": ["a", "b"]})


def of_v1() -> Coalesced:
    return Coalesced(dialect=Rest(codec_of(API), kserve=True))


def of_formats() -> Coalesced:
    return Coalesced(dialect=Native(codec_of(API), offers=("application/json", CSV, NPY)))


def of_bytes(*reads: bytes) -> Coalesced:
    """An API whose handler gets all headers, and lists some."""
    on = Coalesced(input={"kind": "raw", "accepts": ["*"]})
    on.stage.route.headers = frozenset(reads)
    return on


def of_v2() -> Coalesced:
    dialect = V2(codec_of(API), model="echo", inputs=ANY_INPUTS, saw=lambda outputs: None)
    on = Coalesced(dialect=dialect)
    on.stage.route.max_body_bytes = 1000
    return on


@pytest.mark.parametrize(
    ("make", "one", "other"),
    [
        (Coalesced, (b"[1]",), (b"[2]",)),
        (Coalesced, (b"[1]",), (b"[1 ]",)),
        (Coalesced, (b"1",), (b"1.0",)),
        (Coalesced, (b"[1]", KEY), (b"[1]",)),
        (Coalesced, (b"[1]", KEY), (b"[1]", (b"authorization", b"Bearer two"))),
        (Coalesced, (b"[1]", KEY), (b"[1]", (b"x-api-key", b"Bearer one"))),
        (Coalesced, (b"[1]", (b"X-Api-Key", b"one")), (b"[1]", (b"x-api-key", b"two"))),
        (Coalesced, (b"[1]", (b"cookie", b"user=1")), (b"[1]", (b"cookie", b"user=2"))),
        (Coalesced, (b"[1]", (b"cookie", b"a"), (b"cookie", b"b")), (b"[1]", (b"cookie", b"ab"))),
        (of_formats, (b"[1]", (b"accept", NPY.encode())), (b"[1]",)),
        (of_formats, (b"[1]", (b"accept", CSV.encode())), (b"[1]",)),
        (lambda: Coalesced(fair_by=b"x-flow"), (b"[1]", (b"x-flow", b"1")), (b"[1]", (b"x-flow", b"2"))),
        (lambda: Coalesced(**GROUPED), (b"[1]", (b"x-lang", b"de")), (b"[1]", (b"x-lang", b"fr"))),
        (lambda: Coalesced(**GROUPED), (b"[1]", (b"x-lang", b"de")), (b"[1]",)),
        (of_table, (b'{"a":[1],"b":[2]}',), (b'[{"a":1,"b":2}]',)),
        (of_table, (b'{"a":{"r":1},"b":{"r":2}}',), (b'{"a":{"s":1},"b":{"s":2}}',)),
        (of_table, (b'{"a":1,"b":2}',), (b'[{"a":1,"b":2}]',)),
        (of_v2, (v2(parameters={"beams": 1}),), (v2(parameters={"beams": 2}),)),
        (of_v2, (v2(parameters={"beams": 1}),), (v2(),)),
        (of_v2, (v2(data=[[1]]),), (v2(),)),
        (of_v2, (v2(name="secret"),), (v2(),)),
        (of_v2, (v2(parameters={"binary_data_output": True}),), (v2(),)),
        (of_bytes, (b"a", (b"x-scale", b"1")), (b"a", (b"x-scale", b"2"))),
        (lambda: of_bytes(b"b3"), (b"a", (b"b3", b"1")), (b"a", (b"b3", b"2"))),
        (lambda: of_bytes(b"b3"), (b"a", (b"b3", b"1")), (b"a",)),
    ],
)
async def test_what_the_handler_or_the_client_could_tell_apart_runs_by_itself(
    make: Callable[[], Coalesced], one: Any, other: Any
) -> None:
    """Each twice: both pairs are run once."""
    on = make()
    occupied = await on.occupy()
    tasks = [await on.send(*request) for request in (one, other, one, other)]
    await on.replies(occupied, *tasks)
    assert (len(on.ran), on.coalesced) == (2, 2)


@pytest.mark.parametrize(
    ("make", "one", "other"),
    [
        (Coalesced, (b"[1]", (b"x-request-id", b"1")), (b"[1]", (b"user-agent", b"x"))),
        (of_bytes, (b"a", (b"X-Request-Id", b"1"), (b"traceparent", b"00-1")), (b"a", (b"B3", b"2"))),
        (of_v1, (b'{"instances":[1]}',), (b'{"instances": [1] }',)),
        (of_v2, (v2(id="1"),), (v2(id="2"),)),
        (of_table, (b'{"columns":["a","b"],"data":[[1,2]]}',), (b'{"data":[[1,2]],"columns":["a","b"]}',)),
    ],
)
async def test_the_same_rows_may_be_written_in_several_ways(
    make: Callable[[], Coalesced], one: Any, other: Any
) -> None:
    on = make()
    occupied = await on.occupy()
    replies = await on.replies(occupied, await on.send(*one), await on.send(*other))
    assert ([reply.status for reply in replies[1:]], len(on.ran)) == ([200, 200], 1)


async def test_each_client_of_v2_gets_its_own_id() -> None:
    on = of_v2()
    occupied = await on.occupy()
    replies = await on.replies(occupied, *[await on.send(v2(id=name)) for name in ("one", "two")])
    assert [msgspec.json.decode(reply.body)["id"] for reply in replies[1:]] == ["one", "two"]


async def test_each_client_gets_its_own_request_id() -> None:
    """Requests with headers that a proxy or a tracing library adds join, from the first on."""
    on = of_bytes()
    occupied = await on.occupy()
    names = [b"one", b"two", b"three", b"four"]
    tasks = [
        await on.send(b"a", (b"X-Request-Id", name), (b"traceparent", b"00-" + name), (b"x-scale", b"1"))
        for name in names
    ]
    replies = (await on.replies(occupied, *tasks))[1:]
    assert [reply.headers["x-request-id"].encode() for reply in replies] == names
    assert (on.ran, on.coalesced) == ([b"a"], 3)


async def test_classes_do_not_join_each_other() -> None:
    on = Coalesced(rules=ApiRules(name="echo", goal_s=50, bulk_goal_s=100))
    on.stage.metrics.set_classes("echo", ("interactive", "bulk"))
    on.stage.route.classes = Classes(("interactive", "bulk"), on.stage.metrics.bulk("echo"))
    occupied = await on.occupy()
    bulk = (b"x-request-class", b"bulk")
    tasks = [await on.send(b"[1]", *headers) for headers in ((), (bulk,), (bulk,), (bulk,), ())]
    await on.replies(occupied, *tasks)
    assert on.ran == [b"[1]", b"[1]"]
    registry, name = registry_of(on.stage.metrics), "uncork_coalesced_requests_total"
    counts = [registry.get_sample_value(name, {"api": "echo", "class": of}) for of in ("interactive", "bulk")]
    assert counts == [1, 2]


async def test_a_request_of_several_groups_runs_by_itself() -> None:
    api = ApiDescription(name="echo", route="/", input={"kind": "json"}, group_by="g")
    on = Coalesced(dialect=Rest(codec_of(api), kserve=False), grouping=grouping(api))
    body = b'{"instances":[{"g":1},{"g":2}]}'
    replies = await asyncio.gather(*[on.stage.reply(body) for _ in range(2)])
    assert [reply.body for reply in replies] == [b'{"predictions":[{"g":1},{"g":2}]}'] * 2
    assert (len(on.ran), on.coalesced) == (4, 0)


async def test_bulk_that_is_divided_is_run_once() -> None:
    """When all have left, all its parts are cancelled."""
    on = Coalesced()
    occupied = await on.occupy()
    found: list[Asked] = []

    def begin(whole: Submission[Marshalled, HandlerResult]) -> Any:
        whole.payload = divided(whole.payload, 2)
        return submit(on.stage.dispatcher, whole)

    for body in (b"1,2,3,4", b"1,2,3,4", b"5,6", b"5,6"):
        asked = Asked(0, math.inf)
        payload = Marshalled(body, rows=len(body) // 2 + 1, single=False)
        asked.request = on.coalescing.submit(begin, submission_of(asked, "echo", payload, bulk=True), ())
        found.append(asked)
    assert on.stage.dispatcher.unanswered == 1 + 4
    for asked in found[2:]:
        assert asked.request is not None
        asked.request.withdraw()
    assert on.stage.dispatcher.unanswered == 1 + 2
    on.runner.gate.set()
    await occupied
    while not found[1].got:
        await turns()
    assert [asked.got for asked in found] == [[b"1,2,3,4"], [b"1,2,3,4"], [], []]
    assert on.ran == [b"1,2", b"3,4"]


# Deadlines

TIMEOUT = b"x-request-timeout-ms"


async def test_a_client_with_an_earlier_deadline_runs_by_itself() -> None:
    """Later ones join it."""
    on = Coalesced()
    occupied = await on.occupy()
    tasks = [await on.send(b"[1]", *headers) for headers in ((), ((TIMEOUT, b"9000"),), (), ())]
    assert len({reply.status for reply in await on.replies(occupied, *tasks)}) == 1
    assert (len(on.ran), on.coalesced) == (2, 2)


async def test_a_client_whose_time_has_passed_takes_nobody_with_it() -> None:
    """The others run once; one of them whose time has passed too is refused at once."""
    on = Coalesced()
    occupied = await on.occupy()
    first = await on.send(b"[1]", (TIMEOUT, b"100"))
    others = [await on.send(b"[1]", (TIMEOUT, limit)) for limit in (b"100.001", b"5000", b"9000")]
    on.now += 0.2
    on.stage.dispatcher.worker_not_expected("x")  # the core looks at the time
    for refused in await asyncio.gather(first, others[0]):
        assert refused is not None
        assert reason(refused) == "client_deadline"
    await turns()
    assert on.coalescing.requests == 3
    replies = await on.replies(occupied, *others[1:])
    assert [reply.status for reply in replies] == [200, 200, 200]
    assert (on.ran, on.coalesced) == ([b"[1]"], 2)
    labels = {"api": "echo", "reason": "client_deadline"}
    assert registry_of(on.stage.metrics).get_sample_value("uncork_shed_total", labels) == 2


async def test_a_client_whose_time_has_passed_runs_no_more() -> None:
    """Also if the clock of the dispatcher is ahead for an instant, after an alarm that rang early."""
    on = Coalesced()
    occupied = await on.occupy()
    first = await on.send(b"[1]", (TIMEOUT, b"100"))
    on.coalescing.clock = lambda: on.now - 1e-6
    on.now += 0.1000001
    on.stage.dispatcher.worker_not_expected("x")  # the core looks at the time
    await turns()
    assert on.coalescing.requests == 1  # which occupies the worker
    replies = await on.replies(occupied, first)
    assert [reply.status for reply in replies] == [200, 504]
    labels = {"api": "echo", "reason": "client_deadline"}
    assert registry_of(on.stage.metrics).get_sample_value("uncork_shed_total", labels) == 1


async def test_a_client_whose_time_passes_while_its_request_runs_leaves_alone() -> None:
    """The others get the result of the one run, also if the first has left; later clients still join."""
    on = Coalesced()
    on.runner.gate.clear()
    tasks = [await on.send(b"[1]", (TIMEOUT, limit)) for limit in (b"100", b"300", b"200", b"9000")]
    for at, alive in ((0.1, 3), (0.15, 2), (0.1, 1)):
        on.now += at
        on.stage.dispatcher.worker_not_expected("x")  # the core looks at the time
        await turns()
        assert on.coalescing.requests == alive
    assert [task.done() for task in tasks] == [True, True, True, False]
    tasks += [await on.send(b"[1]", (TIMEOUT, b"9000")), await on.send(b"[1]")]
    replies = await on.replies(*tasks)
    assert [reply.status for reply in replies] == [504, 504, 504, 200, 200, 200]
    assert (
        detail(replies[0], 504) == "the timeout in X-Request-Timeout-Ms expired while the request was running"
    )
    assert (on.ran, reason(replies[0]), on.coalesced) == ([b"[1]"], "client_deadline", 3)


async def test_nothing_runs_for_clients_whose_times_have_passed() -> None:
    on = Coalesced()
    on.runner.gate.clear()
    tasks = [await on.send(b"[1]", (TIMEOUT, limit)) for limit in (b"100", b"200")]
    on.now += 0.3
    on.stage.dispatcher.worker_not_expected("x")
    assert [reply and reply.status for reply in await asyncio.gather(*tasks)] == [504, 504]
    await turns()
    assert on.stage.dispatcher.unanswered == 0
    labels = {"api": "echo", "reason": "client_deadline"}
    assert registry_of(on.stage.metrics).get_sample_value("uncork_shed_total", labels) == 2
    on.runner.gate.set()
    assert (await on.stage.reply(b"[1]")).status == 200


# Ends


async def test_when_all_have_left_nothing_runs() -> None:
    on = Coalesced()
    occupied = await on.occupy()
    clients = [Client(b"[1]") for _ in range(3)]
    tasks = [on.stage.post(client) for client in clients]
    await turns()
    for client in clients:
        client.leave()
    await turns()
    assert on.stage.dispatcher.unanswered == 1
    assert len(await on.replies(occupied, *tasks)) == 1
    assert on.ran == []
    assert (await on.stage.reply(b"[1]")).status == 200


async def test_all_get_the_failure() -> None:
    on = Coalesced()
    on.runner.error = RuntimeError("boom")
    replies = await asyncio.gather(*[on.stage.reply(b"[1]") for _ in range(3)])
    assert [reply.status for reply in replies] == [500] * 3
    on.runner.error = None
    on.runner.reply = lambda body: HandlerResult(400, b"row 1 is wrong")
    replies = await asyncio.gather(*[on.stage.reply(b"[1]") for _ in range(3)])
    assert [detail(reply, 400) for reply in replies] == ["row 1 is wrong"] * 3
    assert (len(on.ran), on.coalesced) == (2, 4)


async def test_all_are_refused_and_counted() -> None:
    on = Coalesced()
    occupied = await on.occupy()
    tasks = [await on.send(b"[1]") for _ in range(3)]
    on.stage.dispatcher.give_up()
    assert [reply.status for reply in await on.replies(occupied, *tasks)] == [503] * 4
    labels = {"api": "echo", "reason": "draining"}
    assert registry_of(on.stage.metrics).get_sample_value("uncork_shed_total", labels) == 4


@pytest.mark.parametrize("limits", [{"max_queue_requests": 4}, {"max_queue_bytes": 7 + 3 * 3}])
async def test_no_more_join_than_may_be_queued(limits: dict[str, Any]) -> None:
    """The next one runs by itself."""
    on = Coalesced(rules=replace(RULES, **limits))
    occupied = await on.occupy()
    tasks = [await on.send(b"[1]") for _ in range(4)]
    await on.replies(occupied, *tasks)
    assert (len(on.ran), on.coalesced) == (2, 2)


async def test_a_shadow_gets_one_copy() -> None:
    on, copy = Coalesced(), Stage()
    shadows = ShadowTally()
    on.stage.route.shadows = [Shadow("echo", copy.dispatcher, shadows)]
    await asyncio.gather(*[on.stage.reply(b"[1]") for _ in range(3)])
    await turns()
    assert (copy.runner.batches, shadows.total()) == ([[b"[1]"]], {"agreed": 1})


# Every order of events


class Asked:
    """A client that notes what it gets."""

    def __init__(self, key: int, expires_at: float) -> None:
        self.key = key
        self.expires_at = expires_at
        self.request: CoalescedRequest | None = None
        self.got: list[object] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens while it gets the result."""

    def answered(self, answer: RequestResult[HandlerResult]) -> None:
        self.got.append(answer.result.body)
        self.meanwhile()

    def failed(self, error: Exception) -> None:
        self.got.append(error)
        self.meanwhile()
        raise RuntimeError("a client's fault")


class Orders(RuleBasedStateMachine):
    """Clients join, leave and wait; computations end in every way. A scripted dispatcher runs them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.running: list[Submission[Marshalled, HandlerResult]] = []
        self.waiting: list[Asked] = []
        self.gone: list[Asked] = []
        self.tally = ApiTally()
        self.refuses = False
        self.begun = 0
        self.coalescing = Coalescing(
            self,  # type: ignore[arg-type]
            ApiRules(name="echo", max_queue_requests=6),
            lambda bulk: self.tally,
            lambda: self.now,
        )

    # The dispatcher

    def cancel(self, submission: Submission[Marshalled, HandlerResult]) -> None:
        if submission.leave() is not None:
            self.running.remove(submission)

    def begin(self, submission: Submission[Marshalled, HandlerResult]) -> Any:
        if self.refuses or submission.client_timeout_s <= 0:
            raise RequestShed("queue_full")
        self.begun += 1
        submission.arrival = self.now
        self.running.append(submission)
        return submission

    def end(self, submission: Submission[Marshalled, HandlerResult], outcome: Exception | None) -> None:
        self.running.remove(submission)
        waiter = submission.leave()
        assert waiter is not None
        if outcome is not None:
            waiter.failed(outcome)
            return
        batch: Batch[Any] = None  # type: ignore[assignment]
        waiter.answered(RequestResult(HandlerResult(200, submission.payload.body), batch, 0.0))

    # Events

    @rule(key=st.integers(0, 1), timeout=st.sampled_from([1.0, 3.0, 100.0]))
    def send(self, key: int, timeout: float, **more: Any) -> None:
        asked = Asked(key, self.now + timeout)
        payload = Marshalled(b"%d" % key, rows=1, **more)
        try:
            asked.request = self.coalescing.submit(
                self.begin, submission_of(asked, "echo", payload, timeout), ()
            )
        except RequestShed:
            assert self.refuses
        else:
            self.waiting.append(asked)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(asked)
        self.gone.append(asked)
        assert asked.request is not None
        asked.request.withdraw()
        asked.request.withdraw()

    @precondition(lambda self: len(self.waiting) > 1)
    @rule(data=st.data())
    def leave_with_another(self, data: st.DataObject) -> None:
        """One leaves, or sends again, while another gets its result."""
        first, second = data.draw(st.permutations(self.waiting))[:2]

        def meanwhile() -> None:
            if second in self.waiting and not second.got:
                self.waiting.remove(second)
                self.gone.append(second)
                assert second.request is not None
                second.request.withdraw()
            self.send(first.key, 100.0)

        first.meanwhile = meanwhile

    @precondition(lambda self: self.running)
    @rule(data=st.data(), fails=st.sampled_from([None, ValueError(), RequestShed("deadline")]))
    def finish(self, data: st.DataObject, fails: Exception | None) -> None:
        self.end(data.draw(st.sampled_from(self.running)), fails)

    def expire(self, submission: Submission[Marshalled, HandlerResult]) -> None:
        """The dispatcher tells a running request that its time has passed."""
        assert submission.on_expiry is not None
        again_at = submission.on_expiry(self.now)
        if submission in self.running:
            assert again_at > self.now
            submission.client_timeout_s = again_at - submission.arrival

    @rule(passed=st.sampled_from([0.5, 1.0, 2.0]), refuses=st.booleans(), run=st.booleans())
    def wait(self, passed: float, refuses: bool, run: bool = False) -> None:
        """All that wait are queued, or they ``run``."""
        self.now += passed
        self.refuses = refuses
        for submission in list(self.running):
            late = submission.arrival + submission.client_timeout_s <= self.now
            if late and submission in self.running:
                if run:
                    self.expire(submission)
                else:
                    self.end(submission, RequestShed("client_deadline"))
        self.refuses = False

    # What holds after each event

    @invariant()
    def each_gets_one_result_for_its_own_rows(self) -> None:
        for asked in self.waiting:
            assert len(asked.got) <= 1
            for result in asked.got:
                assert isinstance(result, Exception) or result == b"%d" % asked.key
                if isinstance(result, RequestShed) and result.reason == "client_deadline":
                    assert asked.expires_at <= self.now
                assert not isinstance(result, RequestExpired) or asked.expires_at <= self.now
        assert not any(asked.got for asked in self.gone)
        self.waiting = [asked for asked in self.waiting if not asked.got]

    @invariant()
    def each_waits_for_something_that_is_not_later(self) -> None:
        running = {submission.waiter: submission for submission in self.running}
        computations = set()
        for asked in self.waiting:
            assert asked.request is not None
            computation = asked.request.computation
            computations.add(computation)
            assert computation is not None
            submission = running[computation]
            assert submission.payload.body == b"%d" % asked.key
            assert submission.arrival + submission.client_timeout_s <= asked.expires_at + 1e-9
        assert computations == running.keys()
        assert self.coalescing.requests == len(self.waiting)
        assert self.coalescing.size_bytes == len(self.waiting)


TestOrders = Orders.TestCase


class JoinCount:
    """Takes the place of a span, and counts how often a request joins another."""

    joins = 0

    def set_attribute(self, key: str, value: object) -> None:
        assert (key, value) == ("uncork.coalesced", True)
        self.joins += 1


def test_times_that_pass_one_after_the_other_cost_no_more_than_their_number() -> None:
    orders, span, count = Orders(), JoinCount(), 100
    orders.coalescing.rules = ApiRules(name="echo")
    for number in range(count):
        orders.send(key=0, timeout=1 + number / count, span=span)
    assert (orders.begun, span.joins) == (1, count - 1)
    for _ in range(2 * count):
        orders.wait(passed=1 / count, refuses=False)
    assert all(isinstance(asked.got[0], RequestShed) for asked in orders.waiting)
    assert (orders.begun, span.joins) == (count, count - 1 + count - 2)


def test_times_that_pass_while_a_computation_runs_begin_no_other() -> None:
    """Each client leaves at its own time; the computation ends with the last."""
    orders, count = Orders(), 100
    orders.coalescing.rules = ApiRules(name="echo")
    for number in range(count):
        orders.send(key=0, timeout=1 + number / count)
    asked = list(orders.waiting)
    [submission] = orders.running
    orders.now += 0.5 / count
    for number in range(2 * count):
        orders.wait(passed=0.0 if number == 0 else 1 / count, refuses=False, run=True)
        assert orders.coalescing.requests == min(count, 2 * count - 1 - number)
    assert orders.begun == 1
    assert (orders.running, submission.waiter, submission.on_expiry) == ([], None, None)
    assert all([type(result) for result in one.got] == [RequestExpired] for one in asked)


@pytest.mark.parametrize("why", ["deadline", "no_worker"])
@pytest.mark.parametrize(("goal_s", "begun"), [(2.0, 2), (0.5, 1)])
def test_a_time_of_the_first_client_that_is_too_short_refuses_no_other(
    goal_s: float, begun: int, why: ShedReason
) -> None:
    """The dispatcher sheds it before that time; if the goal is earlier, it is the deadline of all."""
    orders = Orders()
    orders.coalescing.rules = ApiRules(name="echo", goal_s=goal_s)
    for timeout in (1.0, 1.0, 3.0):
        orders.send(key=0, timeout=timeout)
    *hurried, patient = orders.waiting
    orders.end(orders.running[0], RequestShed(why))
    assert all(isinstance(one.got[0], RequestShed) for one in hurried)
    assert (orders.begun, len(orders.running)) == (begun, begun - 1)
    for submission in list(orders.running):
        orders.end(submission, None)
    assert (patient.got == [b"0"]) is (begun == 2)


def test_messages_of_one_stream_are_computed_once() -> None:
    """They have one deadline, which is computed anew for each of them."""
    orders = Orders()
    for timeout in (1.0, 0.999, 0.5):
        orders.send(key=0, timeout=timeout)
    assert orders.begun == 2


def test_what_a_body_has_besides_its_rows_keeps_no_requests_apart() -> None:
    orders = Orders()
    for rest_bytes in (0, 5000):
        orders.send(key=0, timeout=1.0, rest_bytes=rest_bytes)
    assert orders.begun == 1


def test_a_cost_that_a_reload_has_changed_keeps_requests_apart() -> None:
    """The handler sees it."""
    orders = Orders()
    for cost in (1.0, 1.0, 2.0):
        orders.send(key=0, timeout=1.0, cost=Cost(cost, cost, [cost]))
    assert orders.begun == 2
