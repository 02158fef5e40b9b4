"""The whole gateway while new workers take over."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from tests.gateway.fake_worker import FakeWorker, json_api, service
from tests.gateway.gateway_stage import GatewayStage, gateway, problem
from tests.gateway.proxy_stage import Caller, Front
from tests.gateway.running import turns
from tests.gateway.stage import detail, reason
from uncork_workers.wire.messages import Failed
from uncork_workers.wire.schema import ApiDescription, ApiSettings, ServiceDescription


async def test_all_that_was_accepted_is_answered(on: GatewayStage) -> None:
    """The old worker finishes its batch and exits; the new one executes the queued requests."""
    old = await on.worker()
    asking = [on.post("/echo", 0)]
    running, _ = await old.batch()
    asking.append(on.post("/echo", 1))
    await turns(50)
    new = await on.standby(2)
    assert on.service.take_over([2]) == {1}
    old.answer(running, [b'"old"'])
    held, _ = await new.batch()
    new.answer(held, [b'"new"'])

    assert [(await one).json() for one in asking] == ["old", "new"]
    await old.dropped()
    assert on.service.events.files == {"2.py"}


async def test_what_the_new_workers_serve_is_in_force_when_they_take_over(on: GatewayStage) -> None:
    """Not before; requests that are queued for a removed API get an error."""
    first, second = service(json_api("both"), json_api("old")), service(json_api("both"), json_api("new"))

    old = await on.worker(serves=first)
    asking = on.post("/both", 0)
    running, _ = await old.batch()
    held = on.post("/old", 1)
    new = await on.standby(2, serves=second)
    problem(await on.http.post("/new", json=1), 404)

    on.service.take_over([2])

    assert 'uncork_goal_seconds{api="new",service="fake"}' in (await on.http.get("/metrics")).text
    assert 'uncork_goal_seconds{api="old",service="fake"}' not in (await on.http.get("/metrics")).text
    problem(await on.http.post("/old", json=1), 404)
    late = on.post("/new", 2)
    await turns(50)
    old.answer(running, [b'"old"'])
    batch, _ = await new.batch()
    new.answer(batch, [b'"new"'])
    assert batch.api == "new"
    assert [(await asking).json(), (await late).json()] == ["old", "new"]
    gone = await held
    assert problem(gone, 503) == "this API was removed while the request was queued"
    assert gone.json()["reason"] == "api_removed"
    assert gone.headers["retry-after"] == "1"


async def test_an_api_that_was_removed_leaves_no_figures(on: GatewayStage) -> None:
    """Once its requests are answered; one whose body arrives later gets an error."""
    first, second = service(json_api("both"), json_api("old")), service(json_api("both"))

    old = await on.worker(serves=first)
    await on.echo(old, "/old", 1)
    front = Front(on.gateway)
    uploading = Caller(front)
    uploading.send(b"POST /old HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\n\r\n")
    await on.standby(2, serves=second)
    assert 'api="old"' in (await on.http.get("/metrics")).text

    on.service.take_over([2])

    metrics = (await on.http.get("/metrics")).text
    assert 'api="old"' not in metrics
    assert 'api="both"' in metrics
    uploading.send(b"1")
    reply = await uploading.reply()
    assert (detail(reply, 503), reason(reply)) == ("this API was removed", "api_removed")
    assert 'api="old"' not in (await on.http.get("/metrics")).text


async def test_new_code_may_observe_what_the_old_counted(on: GatewayStage) -> None:
    """A batch that the old worker ends later does not change that again."""
    counted = [("faces", {"kind": "a"}, 1.0)]
    old = await on.worker()
    first = on.post("/echo", 0)
    batch, _ = await old.batch()
    old.answer(batch, [b"0"], counts=counted)
    await first
    late = on.post("/echo", 1)
    running, _ = await old.batch()
    new = await on.standby(2)
    on.service.take_over([2], on.service.prepare_take_over([2]))
    asking = on.post("/echo", 2)
    batch, _ = await new.batch()
    new.answer(batch, [b"2"], observed={"faces": [3.0]})
    await asking
    old.answer(running, [b"1"], counts=counted)
    await late

    metrics = (await on.http.get("/metrics")).text
    assert 'app_faces_count{api="echo",service="fake"} 1.0' in metrics
    assert "app_faces_total" not in metrics


async def test_a_request_older_than_several_changes_learns_that_its_api_was_removed(on: GatewayStage) -> None:
    """Its route has been replaced before; a neighbour on its connection is answered."""
    first, second = service(json_api("both"), json_api("old")), service(json_api("both"))

    await on.worker(serves=first)
    uploading = Caller(Front(on.gateway))
    uploading.send(b"POST /old HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\n\r\n")
    on.service.change(on.service.prepare(replace(on.service.events.settings, max_queue_rows=7)))
    new = await on.standby(2, serves=second)
    on.service.take_over([2])

    uploading.send(b"1" + b"POST /both HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\n\r\n2")
    reply = await uploading.reply()
    batch, _ = await new.batch()
    new.answer(batch, [b"2"])

    assert (detail(reply, 503), reason(reply)) == ("this API was removed", "api_removed")
    await turns(50)
    assert uploading.replies()[1].body == b"2"
    assert 'api="old"' not in (await on.http.get("/metrics")).text


TELLS = structs.replace(json_api("tell", ApiSettings(policy="none")), streams=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (json_api(), structs.replace(json_api(), input={"kind": "raw", "accepts": ["application/json"]})),
        (json_api(), structs.replace(json_api(), offers=("text/plain",))),
        (json_api(), structs.replace(json_api(), answers_each=True)),
        (json_api(), structs.replace(json_api(), headers=("x-tenant",))),
        (json_api(), structs.replace(json_api(), group_by="header:x-lang")),
        (structs.replace(json_api(), task="embeddings"), json_api()),
        (json_api(), structs.replace(TELLS, name="echo", route="/echo")),
        (structs.replace(TELLS, name="echo", route="/echo"), json_api()),
    ],
)
@pytest.mark.parametrize("lost", [False, True])
async def test_new_code_runs_no_request_that_was_accepted_for_other_code(
    on: GatewayStage, before: ApiDescription, after: ApiDescription, *, lost: bool
) -> None:
    """Neither what was queued, nor what an old worker has lost, nor what arrives later for the old API."""
    old = await on.worker(serves=service(before))
    asking = [on.post("/echo", 0)]
    running, _ = await old.batch()
    asking.append(on.post("/echo", 1))
    uploading = Caller(Front(on.gateway))
    uploading.send(
        b"POST /echo HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n"
    )
    await turns(50)
    new = await on.standby(2, serves=service(after))
    on.service.take_over([2])
    late = [on.post("/echo", 2)]
    batch, _ = await new.batch()
    uploading.send(b"3")
    late.append(on.post("/echo", 4))
    await turns(50)
    if lost:
        old.close()
    else:
        old.answer(running, [b"0"])
    new.answer(batch, [b""])
    batch, body = await new.batch()
    new.answer(batch, [b""])
    assert {(await one).status_code for one in late} == {200}
    assert (body, batch.rows) == (b"4", [1])

    runs_again = lost and not (before.streams or after.streams)
    replies = [await one for one in asking]
    refused = replies[0 if runs_again else 1 :]
    assert {problem(one, 503) for one in refused} == {"this API was replaced while the request was queued"}
    assert {one.json()["reason"] for one in refused} == {"api_removed"}
    assert reason(await uploading.reply()) == "api_removed"
    labels = {"api": "echo", "reason": "api_removed", "service": "fake"}
    registry = on.gateway.front_end.exposition.registry
    many = [one.status_code for one in replies].count(503) + 1
    assert registry.get_sample_value("uncork_shed_total", labels) == many


async def test_an_api_comes_back_with_another_reload(on: GatewayStage) -> None:
    first, second = service(json_api("both"), json_api("old")), service(json_api("both"))

    old = await on.worker(serves=first)
    await on.echo(old, "/old", 1)
    for launch, served in ((2, second), (3, first)):
        new = await on.standby(launch, serves=served)
        on.service.take_over([launch])
    _, reply = await on.echo(new, "/old", 2)
    assert reply.json() == 2
    metrics = (await on.http.get("/metrics")).text
    assert 'uncork_requests_total{api="old",protocol="http",service="fake",status="200"} 1.0' in metrics


async def test_a_removed_api_leaves_the_metrics_with_its_last_request(on: GatewayStage) -> None:
    """Also if they are sent to a collector, and nobody asks for /metrics."""
    old = await on.worker(serves=service(json_api("both"), json_api("old")))
    asking = on.post("/old", 1)
    running, payload = await old.batch()
    await on.standby(2, serves=service(json_api("both")))
    on.service.take_over([2])
    registry = on.gateway.front_end.exposition.registry

    def apis() -> set[str]:
        return {one.labels.get("api", "") for metric in registry.collect() for one in metric.samples}

    assert "old" in apis()
    old.answer(running, [payload])
    assert (await asking).json() == 1
    assert "old" not in apis()


async def test_what_the_old_code_returned_says_nothing_of_the_new(on: GatewayStage) -> None:
    """The outputs of a model are learned anew, also for an unchanged description."""

    async def outputs(on: GatewayStage) -> list[str]:
        page = (await on.http.get("/v2/models/fake")).json()
        return [output["datatype"] for output in page["outputs"]]

    old = await on.worker()
    await on.echo(old, "/echo", 1)
    assert await outputs(on) == ["INT64"]
    asking = on.post("/echo", 2)
    running, payload = await old.batch()
    new = await on.standby(2)
    on.service.take_over([2])
    old.answer(running, [payload])
    assert (await asking).json() == 2
    assert await outputs(on) == []
    await on.echo(new, "/echo", "text")

    assert await outputs(on) == ["BYTES"]


async def test_a_goal_out_of_reach_is_told_once_for_a_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> int:
        """Return how often the log has the warning."""
        return sum("longer than the goal" in record.getMessage() for record in caplog.records)

    async with gateway(tmp_path, overrides={"mb_max_latency": 0.001}) as on:
        old = await on.worker()
        while not warnings():
            await on.echo(old, "/echo", 1)
        new = await on.standby(2)
        on.service.take_over([2])
        for _ in range(20):
            await on.echo(new, "/echo", 1)

        assert warnings() == 1


@pytest.mark.parametrize(
    ("serves", "says"),
    [
        ([service(name="A"), service(name="B")], "the new workers describe different services"),
        ([service(json_api(settings=ApiSettings(policy="magic")))] * 2, "unknown policy 'magic'"),
        ([service(json_api("other"))], "1 of the new workers cannot take over"),
    ],
)
async def test_workers_that_cannot_take_over_change_nothing(
    on: GatewayStage, serves: list[ServiceDescription], says: str
) -> None:
    old = await on.worker()
    for index, description in enumerate(serves):
        await on.standby(10 + index, index=index, serves=description)

    with pytest.raises(ValueError, match=says):
        on.service.take_over([10, 11])

    _, reply = await on.echo(old, "/echo", 5)
    assert reply.json() == 5
    problem(await on.http.post("/other", json=1), 404)


async def test_a_new_worker_that_fails_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each failure is logged, its traceback once; it is not a reason for "no worker is ready" later."""
    async with gateway(tmp_path) as on:
        old = await on.worker()
        for index in range(2):
            new = await FakeWorker.connect(on.standby_path)
            new.send(Failed(index, "load", "cannot be imported", "line 1"))
            new.close()
            await turns(50)
        old.close()
        await turns(50)
        on.service.events.worker_exited(0, "exited with code 9")

        assert problem(await on.ready(), 503) == "no worker is ready: worker 0 exited with code 9"
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [
        "new worker 0 failed in load: cannot be imported\nline 1",
        "new worker 1 failed in load: cannot be imported",
    ]


async def test_an_old_worker_that_hangs_is_killed(tmp_path: Path) -> None:
    """The one that took over is not, and gets the next batches."""
    async with gateway(tmp_path, overrides={"timeout": 0.05}) as on:
        old = await on.worker()
        asking = on.post("/echo", 1)
        await old.batch()
        new = await on.standby(2)
        on.service.take_over([2])
        assert problem(await asking, 504) == "the batch exceeded the timeout of this API"
        assert on.killed == [1]
        old.close()

        _, reply = await on.echo(new, "/echo", 5)
        assert reply.json() == 5


async def test_an_old_worker_that_does_not_go_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a thread of the user's never ends."""
    monkeypatch.setattr("uncork_gateway.backends.worker_pool._LEAVING_S", 0)

    async with gateway(tmp_path) as on:
        await on.worker()
        await on.standby(2)
        on.service.take_over([2])
        await turns()

        assert on.killed == [1]


async def test_one_worker_alone_brings_no_other_apis(on: GatewayStage) -> None:
    """The other workers do not have them; replacing all workers works."""
    new = service(json_api("new"))

    await on.worker()
    await on.worker(index=1)
    await on.standby(10, serves=new)
    with pytest.raises(ValueError, match="the service has changed, so all workers"):
        on.service.take_over([10])
    await on.standby(11, index=1, serves=new)
    on.service.take_over([10, 11])
    problem(await on.http.get("/new"), 405)


async def test_new_workers_may_be_the_first_to_be_ready(on: GatewayStage) -> None:
    """The earlier workers may never have described their service."""
    new = await on.standby(10)
    assert on.service.take_over([10]) == set()
    assert [api.name for api in (await on.service.events.described).apis] == ["echo"]
    _, reply = await on.echo(new, "/echo", 5)
    assert reply.json() == 5
