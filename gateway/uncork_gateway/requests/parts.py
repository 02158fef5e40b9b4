"""Submits requests to the dispatcher, some in parts, and joins the results of the parts.

A request to an API is in parts if its rows are of several groups, or if it is bulk that does not fit into the
room. Requests of many texts, and large ones in the proxy, are also cut; their parts are submitted one after
another, as workers have room, because the goal could not hold for all of them together.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from uncork_dispatcher import AsyncDispatcher, RequestResult, Submission, Waiter
from uncork_gateway.codecs import Marshalled
from uncork_gateway.codecs.csv import lines_of, lines_under
from uncork_gateway.codecs.parts import divided
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.errors import HandlerFailed
from uncork_gateway.protocols.tensor_rows import result_rows, row_texts
from uncork_gateway.protocols.tensors import Tensor, pick_rows
from uncork_workers.wire.forms import ColumnsForm, RowsForm, TensorForm, common_form
from uncork_workers.wire.schema import CSV
from uncork_workers.wire.tensors import join_columns, split_columns

P = TypeVar("P")
R = TypeVar("R")


class Callbacks(NamedTuple):
    """A waiter whose methods are other objects' methods."""

    answered: Callable[[RequestResult[Any]], None]
    failed: Callable[[Exception], None]


class Parts(ABC, Generic[P, R]):
    """The parts of a request, and the replies to them.

    Args:
        caller: receives the result with the last reply, or the failure of a part.
        bulk: True if the request belongs to the second class.
    """

    def __init__(
        self,
        caller: Waiter[R],
        dispatcher: AsyncDispatcher[P, R],
        api: str,
        count: int,
        *,
        bulk: bool = False,
    ) -> None:
        self._caller = caller
        self._dispatcher = dispatcher
        self._api = api
        self._count = count
        self._bulk = bulk
        self._submitted: list[Submission[P, R]] = []
        self._replies: dict[int, Any] = {}
        self._left: Iterator[Submission[P, R]] = iter(())
        self._reserved_rows, self._reserved_bytes = 0.0, 0

    def withdraw(self) -> int | None:
        """Cancel the parts that have no result yet; return the number of a batch that runs with one."""
        self._left = iter(())
        self._reserve(-self._reserved_rows, -self._reserved_bytes)
        numbers = [self._dispatcher.cancel(submission) for submission in self._submitted]
        return next((number for number in numbers if number is not None), None)

    @abstractmethod
    def _reply_of(self, answer: RequestResult[R]) -> Any:
        """Return the reply in a part's result; None if the result ends the whole request."""

    @abstractmethod
    def _join(self, replies: Sequence[Any], answer: RequestResult[R]) -> None:
        """Give the caller the joined replies; ``answer`` has the last of them."""

    def _waiter(self, at: int) -> Callbacks:
        return Callbacks(partial(self._part_answered, at), self.failed)

    def _submit(
        self, parts: Iterable[Submission[P, R]], *, at_once: int, rows: float, size_bytes: int
    ) -> None:
        """Submit the first parts, and another one whenever one has ended.

        The rows (or their cost) and the bytes of all parts count against the limits of the queue meanwhile.
        """
        self._left = iter(parts)
        self._reserve(rows, size_bytes)
        try:
            for _ in range(at_once):
                self._submit_next()
        except Exception:
            self.withdraw()
            raise

    def _submit_next(self) -> None:
        submission = next(self._left, None)
        if submission is None:
            return
        # The sizes of the parts may add up to more than the whole.
        self._reserve(
            -min(_size(submission), self._reserved_rows),
            -min(submission.size_bytes, self._reserved_bytes),
        )
        self._dispatcher.submit(submission)
        self._submitted.append(submission)

    def _reserve(self, rows: float, size_bytes: int) -> None:
        if rows or size_bytes:
            self._reserved_rows += rows
            self._reserved_bytes += size_bytes
            self._dispatcher.reserve(self._api, rows=rows, size_bytes=size_bytes, bulk=self._bulk)

    def _part_answered(self, at: int, answer: RequestResult[R]) -> None:
        try:
            reply = self._reply_of(answer)
            if reply is None:
                return
            self._replies[at] = reply
            if len(self._replies) == self._count:
                self.withdraw()  # what is left of the parts refers to them
                self._join([self._replies[at] for at in range(self._count)], answer)
            else:
                self._submit_next()
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """End the whole request."""
        self.withdraw()
        self._caller.failed(error)


ApiSubmission = Submission[Marshalled, HandlerResult]
"""A request to an API, as the dispatcher accepts it."""


def submit(dispatcher: AsyncDispatcher[Marshalled, HandlerResult], asked: ApiSubmission) -> Submitted:
    """Queue a request; return it, or its parts, to be cancelled.

    Raises:
        RequestShed: if the request, or a part of it, was shed at once.
    """
    payload = asked.payload
    at_once = refusable = len(payload.parts)
    if asked.rows > 1 and not payload.parts:
        rows = _size(asked)
        if asked.bulk:
            at_once = refusable = dispatcher.bulk_parts(
                asked.api, rows=rows, size_bytes=asked.size_bytes, client_timeout_s=asked.client_timeout_s
            )
            payload = divided(payload, at_once)
        if payload.divisible and not payload.parts:
            count, at_once = dispatcher.parts_in_turn(asked.api, rows=rows)
            # The first part decides for all: the others must not be refused for what its own rows fill.
            payload, refusable = divided(payload, count), 1
        asked.payload = payload
    if payload.parts:
        return GroupParts(dispatcher, asked, at_once=at_once, refusable=refusable)
    dispatcher.submit(asked)
    return asked


def cancel(dispatcher: AsyncDispatcher[Marshalled, HandlerResult], submitted: Submitted) -> int | None:
    """Remove a request, or its parts, from the dispatcher; return the number of a batch that runs with it."""
    return submitted.withdraw() if isinstance(submitted, GroupParts) else dispatcher.cancel(submitted)


class GroupParts(Parts[Marshalled, HandlerResult]):
    """The parts of a request, of which the constructor submits the first ``at_once``.

    Parts behind the first ``refusable`` are not refused on arrival.
    """

    def __init__(
        self,
        dispatcher: AsyncDispatcher[Marshalled, HandlerResult],
        whole: ApiSubmission,
        *,
        at_once: int,
        refusable: int,
    ) -> None:
        parts = whole.payload.parts
        assert whole.waiter is not None
        super().__init__(whole.waiter, dispatcher, whole.api, len(parts), bulk=whole.bulk)
        self._rows: list[Sequence[int]] = []
        """The numbers of the rows in each part that was submitted."""
        # A request of several groups has no body and no cost of its own, but what else came with the rows.
        is_divided = bool(whole.payload.body)
        sized = [whole.payload] if is_divided else [part.payload for part in parts]
        self._submit(
            self._submissions(whole, refusable),
            at_once=at_once,
            rows=sum([one.rows if one.cost.total is None else one.cost.total for one in sized]),
            size_bytes=sum([one.size_bytes for one in sized])
            + (0 if is_divided else whole.payload.rest_bytes),
        )

    def _submissions(self, whole: ApiSubmission, refusable: int) -> Iterator[ApiSubmission]:
        clock = asyncio.get_running_loop().time
        start_s = clock()
        for at, part in enumerate(whole.payload.parts):
            own = replace(part.payload, contract=whole.payload.contract)
            submission = for_same_client(whole, self._waiter(at), own)
            submission.client_timeout_s -= clock() - start_s
            submission.follows = at >= refusable
            self._rows.append(part.rows)
            yield submission

    def _reply_of(self, answer: RequestResult[HandlerResult]) -> HandlerResult | None:
        result = answer.result
        if result.status == 200:
            return result
        if result.content_type and result.status < HTTPStatus.BAD_REQUEST:
            raise HandlerFailed(f"responses of status {result.status} to one request cannot be joined")
        self.withdraw()
        self._caller.answered(answer)
        return None

    def _join(self, replies: Sequence[HandlerResult], answer: RequestResult[HandlerResult]) -> None:
        result = joined(replies, self._rows)
        self._caller.answered(RequestResult(result, answer.batch, answer.queued_s))


def _size(submission: Submission[Any, Any]) -> float:
    return submission.rows if submission.cost is None else submission.cost


def for_same_client(
    asked: ApiSubmission, waiter: Waiter[HandlerResult], payload: Marshalled
) -> ApiSubmission:
    """Return a submission for the client of another one."""
    other = submission_of(
        waiter, asked.api, payload, asked.client_timeout_s, asked.source, asked.flow, asked.bulk
    )
    other.on_expiry = asked.on_expiry
    return other


def submission_of(
    waiter: Waiter[HandlerResult],
    api: str,
    payload: Marshalled,
    client_timeout_s: float = math.inf,
    source: Hashable = None,
    flow: Hashable = None,
    bulk: bool = False,
) -> ApiSubmission:
    """Convert a request, or a part of one, to the form that the dispatcher accepts."""
    cost = payload.cost
    key: Hashable = payload.contract
    if payload.accept or payload.key is not None:
        key = (payload.contract, payload.accept, payload.key)
    return Submission(
        waiter,
        api,
        payload,
        rows=payload.rows,
        cost=cost.total,
        longest=cost.longest,
        size_bytes=payload.size_bytes,
        key=key,
        group=payload.group,
        client_timeout_s=client_timeout_s,
        source=source,
        flow=flow,
        bulk=bulk,
    )


Submitted = ApiSubmission | GroupParts
"""A queued request, or its parts."""


def joined(results: Sequence[HandlerResult], rows: Sequence[Sequence[int]]) -> HandlerResult:
    """Return the result of a whole request.

    Args:
        rows: for each part, the numbers of its rows in the request.

    Raises:
        HandlerFailed: if the results are not rows, or not all of one media type.
    """
    numbers = list(chain.from_iterable(rows))
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    first = results[0]
    if any(result.content_type != first.content_type for result in results):
        raise HandlerFailed("the handler returned several media types for the rows of one request")
    bodies, form = [result.body for result in results], first.form
    if first.content_type:
        return replace(first, body=_joined_csv(bodies, first.content_type, list(map(len, rows)), order))
    if any(result.form != form for result in results):
        texts = [
            text
            for result, part in zip(results, rows, strict=True)
            for text in result_rows(result.body, result.form, len(part))
        ]
        forms = [result.form for result in results]
        return HandlerResult(200, b",".join([texts[at] for at in order]), common_form(forms))
    if isinstance(form, ColumnsForm):
        columns = zip(*map(split_columns, bodies), strict=True)
        kinds = [kind for _, kind in form.columns]
        joined_columns = [_joined(list(each), kind, order) for each, kind in zip(columns, kinds, strict=True)]
        return HandlerResult(200, join_columns(joined_columns), form)
    return HandlerResult(200, _joined(bodies, form, order), form)


def _joined(bodies: Sequence[bytes], form: RowsForm, order: Sequence[int]) -> bytes:
    if not isinstance(form, TensorForm):
        texts = row_texts(b",".join(bodies))
        return b",".join([texts[at] for at in order])
    tensor = Tensor("", form.datatype, (len(order), *form.shape), "binary", b"".join(bodies))
    [picked] = pick_rows(tensor, [order])
    return picked.data


def _joined_csv(
    bodies: Sequence[bytes], media_type: str, counts: Sequence[int], order: Sequence[int]
) -> bytes:
    """Join tables with one header; ``counts`` are the rows that each must have."""
    if media_type == CSV:
        # A handler's own text need not end its last line.
        bodies = [body if body.endswith((b"\r", b"\n")) else body + b"\r\n" for body in bodies]
        header = lines_of(bodies[0])[0]
        tables = [lines_under(header, body) for body in bodies]
        if all(
            table[0] == header and len(table) == count + 1
            for table, count in zip(tables, counts, strict=True)
        ):
            lines = list(chain.from_iterable([table[1:] for table in tables]))
            return b"".join([header, *[lines[at] for at in order]])
    raise HandlerFailed(f"results in {media_type} for the rows of one request cannot be joined")
