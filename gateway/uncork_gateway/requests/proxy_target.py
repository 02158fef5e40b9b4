"""Requests to the servers behind the proxy: how they share calls, and the parts in which they are sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from uncork_dispatcher import AsyncDispatcher, RequestResult, Submission, Waiter
from uncork_gateway.backends.model_servers.known_models import KnownModels
from uncork_gateway.backends.model_servers.merged_calls import CallResult, Part, Sent
from uncork_gateway.backends.model_servers.server import ServerResponse
from uncork_gateway.errors import BadGateway
from uncork_gateway.headers import Header, HeaderRules
from uncork_gateway.protocols.raw_json import Malformed, most_repeated_bytes
from uncork_gateway.protocols.wire import Content, Mergeable, UncertainReply, WrongReply
from uncork_gateway.requests.answered_request import AnsweredRequest
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.requests.parts import Callbacks, Parts


@dataclass(kw_only=True, slots=True)
class Merging:
    """The dispatcher and settings that batch requests into calls to the servers behind the proxy.

    The settings may change at any time; a request uses what they are when it arrives.

    Attributes:
        most_rows: the most rows in a part of a request.
        idempotent: True if a request may be sent again.
        fair_by: the header, in lower case, that names a request's flow.
    """

    dispatcher: AsyncDispatcher[Sent, CallResult]
    models: KnownModels
    batch_headers: BatchHeaders
    header_rules: HeaderRules
    most_rows: int
    idempotent: bool = True
    fair_by: bytes | None = None


class RequestParts(Parts[Sent, CallResult]):
    """The parts of a request, of at most ``most_rows`` rows, and the replies to them.

    If the replies cannot be joined, the whole request is sent again, unchanged.

    Args:
        caller: receives the result of the last part or the whole request, or the failure of a part.
        whole: the request, with the headers of a call with any of its parts.
        keyed: the headers that all requests in a call must share.
        source: identifies the client, if known.
        flow: the request's flow, if flows share the queues equally.
    """

    def __init__(
        self,
        caller: Waiter[CallResult],
        merging: Merging,
        api: str,
        whole: Sent,
        *,
        keyed: tuple[Header, ...],
        source: Hashable,
        flow: Hashable,
    ) -> None:
        self._parts: list[Any] = whole.wire.cut(whole.request, merging.most_rows)
        if len(self._parts) > 1 and _repeats_too_much(whole, self._parts):
            self._parts = [whole.request]
        super().__init__(caller, merging.dispatcher, api, len(self._parts))
        self.rows = sum(part.rows for part in self._parts)
        self._merging = merging
        self._whole = whole
        self._keyed = keyed
        self._source = source
        self._flow = flow
        self._joined: Any = None
        self._uncertain: RequestResult[CallResult] | None = None
        """The result of the last part, if the joined replies may be wrong."""

    def submit(self) -> None:
        """Queue the parts, as the server behind has room for them.

        Raises:
            RequestShed: if one of the first parts was shed at once.
        """
        _, at_once = self._dispatcher.parts_in_turn(self._api, rows=self.rows)
        # The whole body is kept, in case the replies cannot be joined.
        size_bytes = self._whole.request.size_bytes
        self._submit(self._submissions(), at_once=at_once, rows=self.rows, size_bytes=size_bytes)

    def _submissions(self) -> Iterator[Submission[Sent, CallResult]]:
        whole = self._whole
        original = whole.original if len(self._parts) == 1 else None
        key = (whole.target, self._keyed, whole.request.key)
        for at, part in enumerate(self._parts):
            payload = whole._replace(request=part, original=original)
            # The first part decides for all: the others must not be refused for what its own rows fill.
            yield self._submission(self._waiter(at), payload, key=key, follows=at > 0)

    def joined(self, batch: int) -> Content:
        """Return the response to the request, joined from the replies to its parts."""
        batch_id = self._merging.batch_headers.id_of(batch)
        return self._whole.wire.render(self._joined, self._whole.request, batch_id=batch_id)

    def _reply_of(self, answer: RequestResult[CallResult]) -> Any:
        result = answer.result
        if isinstance(result, Part):
            return result.reply
        if isinstance(result, BadGateway) and len(self._parts) > 1:
            self._ask_whole(result)
        else:
            self._caller.answered(answer)
        return None

    def _whole_answered(self, answer: RequestResult[CallResult]) -> None:
        result = answer.result
        is_good = isinstance(result, ServerResponse) and result.status == 200
        self._caller.answered(answer if is_good or self._uncertain is None else self._uncertain)

    def failed(self, error: Exception) -> None:
        if self._uncertain is None:
            super().failed(error)
        else:
            self._caller.answered(self._uncertain)

    def _join(self, replies: Sequence[Any], answer: RequestResult[CallResult]) -> None:
        """Respond with the joined replies, or send the whole request again.

        If a value may be a list of rows or a single value, the reply to the whole request decides; if that
        fails, the value counts as a list of rows.
        """
        try:
            self._joined = self._whole.wire.join(replies)
        except UncertainReply as error:
            self._joined = error.joined
            if self._merging.idempotent:
                self._uncertain = answer
                self._ask_whole(error)
                return
        except (WrongReply, Malformed) as error:
            self._ask_whole(error)
            return
        self._caller.answered(answer)

    def _ask_whole(self, fault: Exception) -> None:
        """Send the whole request again, unchanged; raise BadGateway if it is not idempotent."""
        if not self._merging.idempotent:
            raise BadGateway(str(fault))
        self.withdraw()
        # A key of its own: no other request may share the batch.
        waiter, payload = Callbacks(self._whole_answered, self.failed), self._whole._replace(unchanged=True)
        submission = self._submission(waiter, payload, key=object(), follows=True)
        self._submit([submission], at_once=1, rows=submission.rows, size_bytes=submission.size_bytes)

    def _submission(
        self, waiter: Waiter[CallResult], payload: Sent, *, key: Hashable, follows: bool
    ) -> Submission[Sent, CallResult]:
        return Submission(
            waiter,
            self._api,
            payload,
            rows=payload.request.rows,
            size_bytes=payload.request.size_bytes,
            key=key,
            client_timeout_s=self._whole.expires_at - time.monotonic(),
            source=self._source,
            flow=self._flow,
            follows=follows,
        )


def _repeats_too_much(whole: Sent, parts: Sequence[Mergeable]) -> bool:
    """Return True if a request must not be cut, because of what each part has besides its rows."""
    first = parts[0]
    besides = len(whole.wire.merge([first]).body) - first.size_bytes
    return besides * len(parts) > most_repeated_bytes(whole.request.size_bytes)


class RequestInParts(AnsweredRequest):
    """A request to the servers behind the proxy, sent in parts or relayed unchanged."""

    executor = "model server"
    _parts: RequestParts | None = None
    _relaying: asyncio.Task[None] | None = None

    def _send_parts(self, parts: RequestParts) -> None:
        """Count the rows of the request, and queue its parts."""
        self._parts, self._rows = parts, parts.rows
        if self._span is not None:
            self._span.set_attribute("uncork.rows", self._rows)
        parts.submit()

    def _withdraw(self) -> None:
        parts, self._parts = self._parts, None  # they refer to this request
        if parts is not None:
            self._ran_in = parts.withdraw()
        if self._relaying is not None:
            self._relaying.cancel()

    def failed(self, error: Exception) -> None:
        """Cancel the other parts, and send an error response."""
        self._withdraw()
        super().failed(error)
