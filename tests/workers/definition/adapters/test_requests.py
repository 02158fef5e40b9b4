"""The Requests adapter."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.definition.adapters.raw_stage import Answered, Sent, form, merge, raw, run
from tests.workers.json_values import VALUES, to_json
from uncork_workers.definition.adapters import Request, RequestBatch, Requests, UploadedFile
from uncork_workers.definition.outputs.responses import Rejected, Response
from uncork_workers.wire.messages import Meta

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


def payload(sent: Sent) -> Any:
    (one,) = merge(Requests(), sent).payloads
    return one


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (raw(b'{"a":[1,"x"]}', "application/json"), {"a": [1, "x"]}),
        (raw(b"5", "Application/JSON; charset=utf-8"), 5),
        (raw(b"[1]", "application/vnd.thing+json"), [1]),
        (raw("é".encode(), "text/plain"), "é"),
        (raw("é".encode("latin-1"), "text/csv; charset=ISO-8859-1"), "é"),
        (raw("é".encode("utf-16"), 'text/plain; charset="utf-16"'), "é"),
        (raw(b"", "text/plain"), ""),
        (raw(b"a=1&b=%C3%A9+x&a=2&c=", "application/x-www-form-urlencoded"), {"a": "2", "b": "é x", "c": ""}),
        (raw(b"", "application/x-www-form-urlencoded"), {}),
        (raw(b"\0\xff", "application/octet-stream"), b"\0\xff"),
        (raw(b"\0\xff", "image/png"), b"\0\xff"),
        (raw(b"{", "a thing of no sense"), b"{"),
    ],
)
def test_the_payload_is_what_the_content_type_says(sent: Sent, expected: Any) -> None:
    got = payload(sent)

    assert got == expected
    assert type(got) is type(expected)


def test_the_payload_of_a_form_has_files_and_text() -> None:
    """Parts with a file name are files; the last part of a name wins."""
    sent = form({"photo": ("me.png", b"\x89", "image/png")}, {"name": "Zoë", "age": ["1", "2"]})

    assert payload(sent) == {
        "photo": UploadedFile(data=b"\x89", filename="me.png", content_type="image/png"),
        "name": "Zoë",
        "age": "2",
    }


@given(values=st.lists(VALUES, max_size=5), texts=st.lists(TEXTS, max_size=5))
def test_merging_is_the_same_as_reading_each_alone(values: list[Any], texts: list[str]) -> None:
    requests = [raw(to_json(value), "application/json", f"n={n}") for n, value in enumerate(values)]
    requests += [raw(text.encode(), "text/plain") for text in texts]

    merged = merge(Requests(), *requests)

    assert merged.payloads == [payload(sent) for sent in requests] == [*values, *texts]
    assert merged.queries == [{"n": str(n)} for n in range(len(values))] + [{}] * len(texts)


def test_queries_and_headers_come_with_the_payloads() -> None:
    """Headers of the same name are joined, as RFC 9110 allows."""
    meta = Meta(
        "text/plain",
        "a=1&a=2&b=&c=%C3%A9+x&%zz",
        (("content-type", "text/plain"), ("x-tag", "one"), ("x-tag", "two")),
    )

    batch = merge(Requests(), Sent(b"hello", meta))

    assert batch.payloads == ["hello"]
    assert batch.queries == [{"a": "2", "b": "", "c": "é x", "%zz": ""}]
    assert batch.headers == [{"content-type": "text/plain", "x-tag": "one, two"}]


def test_a_batch_is_a_sequence_of_requests() -> None:
    """With slices, so that large batches can be cut."""
    batch = merge(Requests(), *(raw(b"%d" % n, "application/json", f"n={n}") for n in range(5)))

    assert [request.payload for request in batch] == [0, 1, 2, 3, 4]
    assert isinstance(batch[1], Request)
    assert batch[1].query == {"n": "1"}
    part = batch[1:3]
    assert isinstance(part, RequestBatch)
    assert (len(part), part.payloads, part.queries) == (2, [1, 2], [{"n": "1"}, {"n": "2"}])
    assert len(part.headers) == 2


def test_a_payload_is_read_once() -> None:
    (request,) = merge(Requests(), raw(b"[1]", "application/json"))

    assert request.payload is request.payload


ANSWERS: list[tuple[Any, Answered]] = [
    (b"\0\xff", Answered(200, b"\0\xff", "application/octet-stream")),
    ("é", Answered(200, "é".encode(), "text/plain; charset=utf-8")),
    ({"a": 1}, Answered(200, b'{"a":1}', "application/json")),
    (None, Answered(200, b"null", "application/json")),
    (
        Response("made", status=201, headers={"Location": "/things/1"}),
        Answered(201, b"made", "text/plain; charset=utf-8", (("Location", "/things/1"),)),
    ),
    (Response(b"<p>", content_type="text/html"), Answered(200, b"<p>", "text/html")),
    (Rejected(418, "I am a teapot"), Answered(418, b"I am a teapot")),
]


@given(answers=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=8), limit_rows=st.integers(1, 9))
def test_each_result_is_an_answer_of_its_own(answers: list[tuple[Any, Answered]], limit_rows: int) -> None:
    requests = [raw(b"%d" % n, "application/json") for n in range(len(answers))]

    def handler(batch: RequestBatch) -> list[Any]:
        return [answers[at][0] for at in batch.payloads]

    got = run(Requests(), handler, requests, limit_rows=limit_rows)

    assert got == [expected for _, expected in answers]


@pytest.mark.parametrize("wrong", [lambda batch: batch.payloads[:-1], lambda batch: "text"])
def test_a_handler_must_return_a_list_with_one_result_for_each(wrong: Callable[[RequestBatch], Any]) -> None:
    answers = run(Requests(), wrong, [raw(b"1", "application/json"), raw(b"2", "application/json")])

    assert [answer.status for answer in answers] == [500, 500]
