"""Raw requests for adapters, as clients write them, and batches of them run by an Executor."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import httpx

from tests.workers.run_batch import run_batch
from uncork_workers.definition.adapters import Adapter
from uncork_workers.definition.service import Service, api
from uncork_workers.wire.forms import RawForm
from uncork_workers.wire.messages import Meta

Files = Mapping[str, Any] | Sequence[tuple[str, Any]]


class Sent(NamedTuple):
    """A body with its content type, query and headers."""

    body: bytes
    meta: Meta


class Answered(NamedTuple):
    status: int
    body: bytes
    content_type: str = ""
    headers: Sequence[tuple[str, str]] = ()


def raw(body: bytes, content_type: str = "application/octet-stream", query: str = "") -> Sent:
    return Sent(body, Meta(content_type, query, (("content-type", content_type),)))


def form(files: Files, data: Mapping[str, Any] | None = None) -> Sent:
    """Return a request with a multipart form, as httpx writes it."""
    request = httpx.Request("POST", "http://uncork", files=files, data=data)
    return raw(request.read(), request.headers["content-type"])


def merge(adapter: Adapter, *requests: Sent) -> Any:
    return adapter.merge_raw([sent.body for sent in requests], [sent.meta for sent in requests])


def run(
    adapter: Adapter,
    handler: Callable[[Any], Any],
    requests: Sequence[Sent],
    *,
    limit_rows: int = 1000,
) -> list[Answered]:
    class Served(Service):
        @api(input=adapter)
        def answer(self, rows: Any) -> Any:
            return handler(rows)

    bodies, metas = [sent.body for sent in requests], [sent.meta for sent in requests]
    reply, bodies = run_batch(
        Served(), "answer", *bodies, forms=(RawForm(),), metas=metas, limit_rows=limit_rows
    )
    count = len(requests)
    return list(
        map(
            Answered,
            reply.statuses,
            bodies,
            reply.content_types or [""] * count,
            [tuple(one) for one in reply.headers or [[]] * count],
        )
    )
