"""Error responses to input that could not be read as a request."""

from dataclasses import dataclass

from uncork_gateway.errors import PROBLEM_JSON, GatewayError, problem
from uncork_gateway.headers import header_lines
from uncork_gateway.interfaces import Connection, QueuedRequest


@dataclass(slots=True, eq=False)
class Refusal:
    """Queued in place of the unreadable request, so that earlier requests get their responses first."""

    connection: Connection
    error: GatewayError
    request_id: bytes
    keep_alive: bool = False
    cors: bytes = b""

    def start(self) -> None:
        access_log = self.connection.access_log
        if access_log is not None:
            access_log.request("-", b"-", self.error.status, 0.0, size=0, request_id=self.request_id)
        reply_problem(self.connection, self, self.error)

    def disconnect(self) -> None:
        pass  # nothing is running


def reply_problem(connection: Connection, request: QueuedRequest, error: GatewayError) -> None:
    """Respond to a started request with a problem document, and close the connection."""
    request.keep_alive = False
    head = header_lines([*error.headers(), (b"content-type", PROBLEM_JSON.encode())])
    body = problem(error.status, str(error), error.reason, request.request_id)
    connection.reply(request, error.status, head, body)
