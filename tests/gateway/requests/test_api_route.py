"""API routes: how requests are read, and what replies look like."""

import asyncio
import itertools
import re

import pytest

from tests.dispatcher.wrapped_core import note_sources
from tests.gateway.client import Client, Connection, Reply, request
from tests.gateway.running import turns
from tests.gateway.stage import Stage, detail
from uncork_gateway.codecs import Marshalled, codec_of, grouping
from uncork_gateway.dialects import V2, Dialect, Native, Rest
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.dialects.inputs import ANY_INPUTS
from uncork_gateway.dialects.text_models import TEXT_MODELS
from uncork_workers.definition.adapters import DataFrame, Json, Text
from uncork_workers.wire.schema import ApiDescription


async def test_an_answer_says_where_it_comes_from() -> None:
    """A reply has the body, the batch and its times."""
    stage = Stage()

    reply = await stage.reply(
        b' {"a": 1}', headers=[(b"content-type", b"application/json"), (b"x-request-id", b"one")]
    )

    timing = reply.headers.pop("server-timing")
    assert reply == Reply(
        200,
        {
            "content-type": "application/json",
            "content-length": "9",
            "x-batch-id": "gateway-1",
            "x-batch-size": "1",
            "x-request-id": "one",
        },
        b' {"a": 1}',
    )
    assert re.fullmatch(r"queue;dur=\d+\.\d\d, batch;dur=\d+\.\d\d", timing)
    assert stage.counted(200) == 1


async def test_times_are_told_in_milliseconds() -> None:
    now = 100.0

    def reply_after_1500_ms(body: bytes) -> HandlerResult:
        nonlocal now
        now += 1.5
        return HandlerResult(200, body)

    stage = Stage(clock=lambda: now)
    stage.runner.reply = reply_after_1500_ms
    stage.runner.gate.clear()
    first = stage.post(Client(b"1"))
    await turns()
    second = stage.post(Client(b"2"))
    await turns()
    now += 0.25
    stage.runner.gate.set()
    replies = await asyncio.gather(first, second)

    assert [reply and reply.headers["server-timing"] for reply in replies] == [
        "queue;dur=0.00, batch;dur=1750.00",
        "queue;dur=1750.00, batch;dur=1500.00",
    ]


async def test_requests_of_different_keys_do_not_share_a_batch() -> None:
    """Rows of different lengths cannot become one array."""
    stage = Stage(input={"kind": "ndarray", "shape": [None]})

    await asyncio.gather(*(stage.reply(body) for body in (b"[1]", b"[1,2]", b"[[3],[4]]")))

    assert stage.runner.batches == [[b"[1]", b"[3],[4]"], [b"[1,2]"]]


@pytest.mark.parametrize("pieces", [(b"[1,", b"2", b"]"), (b"", b"[1,2]", b""), (b"[1,2]", b"")])
async def test_a_body_may_come_in_pieces(pieces: tuple[bytes, ...]) -> None:
    assert (await Stage().reply(*pieces)).body == b"[1,2]"


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/jsonl", "json", "multipart/form-data; x=y"]
)
async def test_other_content_types_are_refused(content_type: str) -> None:
    """415; the message says what to send. The body is not read."""
    stage = Stage()
    client = Client(b"1", headers=[(b"content-type", content_type.encode())], said=True)

    reply = await stage.post(client)

    assert reply is not None
    name = content_type.partition(";")[0]
    message = f"content type {name!r} is not accepted; send application/json"
    assert detail(reply, 415) == message
    assert client.sent == 0
    assert (stage.counted(415), stage.runner.jobs) == (1, [])


@pytest.mark.parametrize("body", [b"", b"{", b"1 2", b"[1],[2]"])
async def test_a_malformed_body_is_refused(body: bytes) -> None:
    """400 with the reason, without a worker."""
    stage = Stage(workers=0)

    assert detail(await stage.reply(body), 400).startswith("the body is not valid JSON: ")
    assert (stage.counted(400), stage.runner.jobs) == (1, [])


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ((b"1" * 101,), True),
        ((b"1" * 101,), False),
        ((b"1" * 60, b"1" * 41), False),
        ((b"1" * 60, b"1" * 40, b"1", b"1"), False),
        ((b"1" * 101, b"1"), False),
    ],
    ids=["said", "unsaid", "two pieces", "many pieces", "first piece"],
)
async def test_a_body_over_the_limit_is_refused(pieces: tuple[bytes, ...], said: bool) -> None:
    """413 as early as possible; the rest is not read, so the connection closes."""
    stage = Stage()
    client = Client(*pieces, said=said)

    reply = await stage.post(client)

    assert reply is not None
    assert detail(reply, 413) == "the body exceeds the limit of 100 bytes"
    assert reply.headers["connection"] == "close"
    sizes = itertools.accumulate(map(len, pieces))
    assert client.sent == (0 if said else 1 + [size > 100 for size in sizes].index(True))
    assert (stage.counted(413), stage.runner.jobs) == (1, [])


@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("pieces", [(b"1" * 100,), (b"1" * 60, b"1" * 40)])
async def test_a_body_of_the_limit_is_accepted(pieces: tuple[bytes, ...], said: bool) -> None:
    reply = await Stage().post(Client(*pieces, said=said))

    assert reply is not None
    assert reply.status == 200


async def test_a_body_that_cannot_be_weighed_is_refused() -> None:
    """400 with the reason; other requests are answered."""
    stage = Stage(cost="n")

    bad, good = await asyncio.gather(stage.reply(b'{"m": 1}'), stage.reply(b'{"n": 1}'))

    assert detail(bad, 400) == "the field 'n' is missing"
    assert good.status == 200


_LONG = b"x" * 100_000
_V2 = b'{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]%b}]%b}'


@pytest.mark.parametrize(
    ("speaks", "body"),
    [
        ("v2", _V2 % (b"", b',"id":"%b"' % _LONG)),
        ("v2", _V2 % (b"", b',"other":"%b"' % _LONG)),
        ("v2", _V2 % (b"", b',"outputs":[{"name":"%b"}]' % _LONG)),
        ("v2", _V2 % (b',"parameters":{"p":"%b"}' % _LONG, b"")),
        ("v2", _V2.replace(b"x", _LONG) % (b"", b"")),
        ("v1", b'{"instances":[1],"other":"%b"}' % _LONG),
        ("table", b'{"a":{"%b":1}}' % _LONG),
        ("table", b'[{"a":1},%b{"a":1}]' % (b" " * 100_000)),
        ("embeddings", b'{"input":["a"],"other":"%b"}' % _LONG),
        ("embeddings", b'{"input":["a","a"],"model":"%b"}' % _LONG),
        ("rerank", b'{"query":"a","documents":["a"],"other":"%b"}' % _LONG),
        ("groups", b'{"inputs":{"g":[1,2],"n":[1,2]},"other":"%b"}' % _LONG),
        ("groups", b'{"inputs":{"g":[1,2],"n":["%b",2]},"other":"%b"}' % (_LONG[1000:], _LONG[:50_000])),
    ],
)
async def test_all_of_a_body_counts_against_the_queue(speaks: str, body: bytes) -> None:
    """The response may need more than the rows, and what is kept for it takes memory as rows do."""
    adapter = {"table": DataFrame(), "embeddings": Text(), "groups": Json()}.get(speaks, Json())
    group_by = "g" if speaks == "groups" else None
    api = ApiDescription(name="echo", route="/", input=adapter.describe(), group_by=group_by)
    codec = codec_of(api)
    dialects: dict[str, Dialect] = {
        "v2": V2(codec, model="m", inputs=ANY_INPUTS, saw=print),
        "v1": Rest(codec, kserve=False),
        "groups": Rest(codec, kserve=False),
        "table": Native(codec),
        **{name: kind(codec) for name, kind in TEXT_MODELS.items()},
    }
    stage = Stage(dialect=dialects[speaks], grouping=grouping(api))
    stage.runner.gate.clear()
    running = asyncio.create_task(stage.dispatcher.call("echo", Marshalled(b"1", rows=1)))
    stage.route.max_body_bytes = 2 * len(_LONG)
    client = Client(body, said=True)
    asking = stage.post(client)
    await turns()
    [stats] = stage.dispatcher.stats()

    assert stats.queued_bytes == pytest.approx(len(body), abs=100)
    client.leave()
    await asking
    stage.runner.gate.set()
    await running
    [stats] = stage.dispatcher.stats()
    assert stats.queued_bytes == 0


async def test_the_dispatcher_is_told_which_connection_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = note_sources(monkeypatch, "uncork_dispatcher.asyncio_dispatcher")
    stage = Stage()
    for connection in (first := Connection(stage.server), Connection(stage.server), first):
        connection.send(request(b"1"))
        await turns()
    assert len(first.replies()) == 2
    one, other, again = sources
    assert one == again != other
