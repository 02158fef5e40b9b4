"""The parts of scripts/bench interop proxy that measure and install nothing."""

import asyncio
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.interop.bench import faults
from benchmarks.interop.catalogue import SERVICES, Service
from benchmarks.interop.checked import Checked, Question, check, fault, questions
from benchmarks.interop.dialects import V1, V2, V2_GRPC, Dialect
from benchmarks.interop.trials import DIRECT, PROXY, Finding, finding
from benchmarks.peers.entrants import Work
from benchmarks.tests.peers.made_up_rounds import rounds
from tests.gateway.grpc.proxy.fake_grpc_server import Call, Reply, fake_grpc_server, ok
from tests.loadtests.fake_server import Handler, reply, serving
from tests.loops import other_tasks
from uncork_gateway.grpc.messages import make, message
from uncork_gateway.grpc.statuses import Code

CLIENTS = 7
DIALECTS = st.sampled_from([V1, V2, V2_GRPC])
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
RATES = {DIRECT: [100.0, 50.0, 80.0], PROXY: [400.0, 250.0, 320.0]}


def sleeping() -> Service:
    return SERVICES[0]


def work() -> Work:
    return sleeping().work(clients=CLIENTS)


def answer_v2(body: bytes) -> dict[str, object]:
    asked = json.loads(body)
    (tensor,) = asked["inputs"]
    (rows, width), data = tensor["shape"], tensor["data"]
    sums = [sum(data[n * width : (n + 1) * width]) for n in range(rows)]
    return {"id": asked["id"], "outputs": [{"name": "sums", "shape": [rows, 1], "data": sums}]}


def answer_grpc(values: list[float], request_id: str) -> bytes:
    answer = make(
        "inference.ModelInferResponse",
        id=request_id,
        outputs=[{"name": "sums", "datatype": "FP64", "shape": [len(values)]}],
        raw_output_contents=[np.array(values, "<f8").tobytes()],
    )
    return answer.SerializeToString()


def saying(dialect: Dialect, values: list[float], request_id: str = "1") -> bytes:
    """Write these values in one of the protocols; V1 has no ids."""
    if dialect is V1:
        return json.dumps({"predictions": values}).encode()
    if dialect is V2_GRPC:
        return answer_grpc(values, request_id)
    output = {"name": "sums", "shape": [len(values)], "data": values}
    return json.dumps({"id": request_id, "outputs": [output]}).encode()


def found(**checked: Checked) -> Finding:
    seen = {way: rounds(requests_per_second=rates) for way, rates in RATES.items()}
    well = Checked(requests=10)
    return finding("theirs", checked={way: checked.get(way, well) for way in RATES}, rounds=seen)


@given(dialect=DIALECTS, values=st.lists(NUMBERS, min_size=1), data=st.data())
def test_only_the_right_answer_is_right(dialect: Dialect, values: list[float], data: st.DataObject) -> None:
    question = Question(request_id="1", body=b"", right=values)
    at = data.draw(st.integers(0, len(values) - 1))
    other = data.draw(NUMBERS.filter(lambda value: value != values[at]))

    def judged(said: list[float]) -> str:
        return fault(question, dialect=dialect, status=200, answer=saying(dialect, said))

    assert judged(values) == ""
    assert "right is" in judged([*values[:at], other, *values[at + 1 :]])
    assert "right is" in judged([*values, other])
    assert judged(values[:-1])


@given(dialect=DIALECTS, answer=st.binary() | st.sampled_from([b"{}", b"[]", b"null", b'{"outputs": []}']))
def test_what_is_no_answer_is_told_with_its_text(dialect: Dialect, answer: bytes) -> None:
    question = Question(request_id="1", body=b"", right=[1.5])

    assert repr(answer[:200]) in fault(question, dialect=dialect, status=200, answer=answer)


def test_a_refusal_and_the_answer_to_another_are_faults() -> None:
    question = Question(request_id="3-1", body=b"", right=[1.5])
    stretched = {"id": "3-1", "outputs": [{"name": "sums", "shape": [2, 1], "data": [1.5]}]}

    def judged(status: int, answer: bytes) -> str:
        return fault(question, dialect=V2, status=status, answer=answer)

    assert "503" in judged(503, saying(V2, [1.5], "3-1"))
    assert "the id is '4-1'" in judged(200, saying(V2, [1.5], "4-1"))
    assert "the shape is [2, 1]" in judged(200, json.dumps(stretched).encode())


@pytest.mark.parametrize("dialect", [V1, V2, V2_GRPC])
def test_every_client_asks_about_rows_of_its_own(dialect: Dialect) -> None:
    asked = [questions(work(), dialect=dialect, client=client) for client in range(CLIENTS)]

    assert len({tuple(each[0].right) for each in asked}) == CLIENTS
    assert [len(each[0].right) for each in asked] == [1, 2, 3, 1, 2, 3, 1]
    assert len({each.request_id for client in asked for each in client}) == sum(map(len, asked))


def test_swapped_answers_and_lost_requests_are_told_apart() -> None:
    async def handler(body: bytes, writer: asyncio.StreamWriter) -> None:
        answer = answer_v2(body)
        if answer["id"] == "3-2":
            writer.close()
            return
        if answer["id"] == "6-5":
            neighbour = questions(work(), dialect=V2, client=0)[0]
            answer = {**answer_v2(neighbour.body), "id": "6-5"}
        writer.write(reply(json.dumps(answer).encode()))

    seen = ask(handler)

    assert [each.partition(" is ")[0] for each in seen.wrong] == ["request 6-5"]
    assert [each.partition(" has ")[0] for each in seen.lost] == ["request 3-2"]


def test_answers_over_grpc_are_checked_and_errors_told_apart() -> None:
    """Refusals are wrong answers; UNAVAILABLE is no answer."""

    def script(call: Call) -> Reply:
        request = message("inference.ModelInferRequest").FromString(call.body)
        rows = np.frombuffer(request.raw_input_contents[0], "<f8").reshape(request.inputs[0].shape)
        if request.id == "3-2":
            return Reply(code=Code.UNAVAILABLE, text="gone")
        if request.id == "6-5":
            return Reply(code=Code.INVALID_ARGUMENT, text="bad")
        return ok(answer_grpc(rows.sum(axis=1).tolist(), request.id))

    async def run() -> Checked:
        async with fake_grpc_server(script) as fake:
            address = fake.url.removeprefix("grpc://")
            return await check(address, dialect=V2_GRPC, work=work(), clients=CLIENTS)

    assert asyncio.run(run()) == Checked(
        requests=CLIENTS * 10,
        wrong=["request 6-5 is answered 500: b'INVALID_ARGUMENT: bad'"],
        lost=["request 3-2 has no answer: gone"],
    )


def ask(handler: Handler) -> Checked:
    async def run() -> Checked:
        async with serving(handler) as url:
            seen = await check(url, dialect=V2, work=work(), clients=CLIENTS)
            # The server's side of every connection, which ends with its client.
            await asyncio.gather(*other_tasks())
            return seen

    return asyncio.run(run())


def test_the_ratio_is_through_the_proxy_to_direct() -> None:
    ratio = found().ratio
    assert ratio is not None
    assert ratio.median == 4


def test_a_wrong_answer_is_a_fault_on_either_way_and_a_lost_one_behind_the_proxy() -> None:
    wrong, lost = Checked(requests=10, wrong=["w"]), Checked(requests=10, lost=["gone"])

    assert faults(found()) == []
    assert faults(found(direct=wrong)) == ["theirs, direct: w"]
    assert faults(found(proxy=wrong)) == ["theirs, proxy: w"]
    assert faults(found(direct=lost)) == []
    assert faults(found(proxy=lost)) == ["theirs, proxy: gone"]
