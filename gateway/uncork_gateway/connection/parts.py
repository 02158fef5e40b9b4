"""The interface that a connection offers to its own parts."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from uvicorn.protocols.http.flow_control import FlowControl

from uncork_gateway.connection.route_table import Known
from uncork_gateway.connection.state import State
from uncork_gateway.errors import GatewayError
from uncork_gateway.interfaces import Connection


class ConnectionOfParts(Connection, Protocol):
    """A connection as its parser, timeouts and requests see it; see :class:`HttpProtocol`.

    Attributes:
        flow: tells whether either side has stopped reading.
        begun: the number of requests that have begun to arrive and are parsed.
        answered: the number of responses sent.
        body_bytes: the total size of the bodies received.
        is_waiting: True if :meth:`begin` has not handled a complete request yet.
    """

    state: State
    flow: FlowControl
    begun: int
    answered: int
    body_bytes: int
    is_waiting: bool

    @property
    def is_answering(self) -> bool: ...

    def begin(self, known: Known, body: bytes) -> None:
        """Open a request that has arrived completely."""

    def message_begins(self) -> None: ...
    def head_complete(self) -> None: ...
    def body_received(self, piece: bytes) -> None: ...
    def message_complete(self) -> None: ...
    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> None: ...
    def give_up(self, error: GatewayError) -> None: ...
    def close(self) -> None: ...
