"""Model servers that do not exist: they speak HTTP, take time, fail and close connections."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import httptools

from tests.simulation.network import End
from tests.simulation.requests import unprefixed
from tests.simulation.workers import BAD_ROW, Row, result_of, row_of_values, status_of
from uncork_workers.wire.tensors import prefixed

if TYPE_CHECKING:
    from tests.simulation.proxies import ProxySchedule

_JSON_LENGTH = "inference-header-content-length"
_CONNECT_S = 0.0005
_DOWN_S = (0.1, 1.0, 8.0)


class Call(NamedTuple):
    """A request that has arrived: the bodies of a response with results, and how it has its rows."""

    model: str
    rows: list[Row]
    form: str
    is_binary: bool = False


class ModelServer:
    """One server with several connections."""

    def __init__(self, schedule: ProxySchedule, host: str) -> None:
        self.schedule, self.host = schedule, host
        self._random = schedule.draws.random(host)
        self._slowness = self._random.choice([0.2, 1.0, 1.0, 5.0])
        self._connections: list[Connection] = []
        self._calls = self._accepted = 0
        self._is_down = self._is_sick = False

    def fault(self, name: str, probability: float) -> bool:
        return self.schedule.fails(f"{self.host}.{name}", probability)

    async def connect(self, protocol: Any) -> End:
        """Accept a connection of the proxy's, or refuse it, perhaps late."""
        self._accepted += 1
        name = f"{self.host}.{self._accepted}"
        if self.fault(f"{self._accepted}.connects_late", 0.03):
            await asyncio.sleep(self._random.choice([1.0, 6.0]))
        await asyncio.sleep(_CONNECT_S)
        if self._is_down or self.fault(f"{self._accepted}.refuses", 0.02):
            raise ConnectionRefusedError(f"{name} is refused")
        connection = Connection(self, name)
        self._connections.append(connection)
        end = self.schedule.network.connect(name, connection, protocol, self._random)
        if self.fault(f"{self._accepted}.resets", 0.02):
            connection.end.abort()
        return end

    async def has_trouble(self) -> None:
        """Be down or unhealthy for a while."""
        self.schedule.has_failed = True
        if self._random.random() < 0.5:
            self._is_sick = True
        else:
            self._die()
        await asyncio.sleep(self._random.choice(_DOWN_S))
        self._is_down = self._is_sick = False

    def _die(self) -> None:
        self._is_down = True
        for connection in self._connections:
            connection.end.abort()

    def asked(
        self, connection: Connection, method: str, target: str, head: dict[str, str], body: bytes
    ) -> None:
        """Answer a request when its time has come."""
        if method == "GET":
            return connection.answer(503 if self._is_sick else 200, {}, b"")
        self._calls += 1
        name = f"{self._calls}"
        encoding = head.get("content-encoding", "gzip")
        if encoding != "gzip" or head.get("content-type") == "text/csv":
            return connection.answer(415, {}, b"unknown")
        try:
            call = _read(target, head, gzip.decompress(body) if "content-encoding" in head else body)
        except (ValueError, KeyError, TypeError, struct.error):
            return connection.answer(400, {}, b"unreadable")
        connection.runs = call
        calls = [each.runs for each in self._connections if each.runs is not None and each.is_open]
        self.schedule.begins(self, call, calls)
        seconds = self._slowness * (0.002 + 0.001 * len(call.rows)) * self._random.uniform(0.8, 1.2)
        if self.fault(f"{name}.slow", 0.03):
            seconds += self._random.choice([0.5, 3.0])
        if self.fault(f"{name}.hangs", 0.01):
            return
        if self.fault(f"{name}.closes_before", 0.03):
            return connection.end.close()
        if any(row.get("kills") for row in call.rows) or self.fault(f"{name}.dies", 0.01):
            self.schedule.loop.call_later(seconds / 2, self._die)
            self.schedule.loop.call_later(seconds / 2 + self._random.choice(_DOWN_S), self._revive)
            return
        self.schedule.loop.call_later(seconds, self._respond, connection, call, name)

    def _revive(self) -> None:
        self._is_down = False

    def _respond(self, connection: Connection, call: Call, name: str) -> None:
        if connection.end.is_closing():
            return
        self.schedule.ends(call)
        status, text = status_of(call.rows), BAD_ROW.encode()
        headers: dict[str, str] = {}
        if self.fault(f"{name}.is_busy", 0.03):
            status, text = self._random.choice([429, 500, 503]), b"busy"
            if self._random.random() < 0.5:
                headers["retry-after"] = f"{self._random.choice([0, 1, 5])}"
        if status != 200:
            return connection.answer(status, headers, text)
        results = [result_of(call.model, row) for row in call.rows]
        if self.schedule.is_shared(call) and self.fault(f"{name}.loses_a_row", 0.1):
            del results[0]
        more, body = _written(call, results)
        connection.answer(200, headers | more, body, name)


class Connection:
    """One connection of a server, as an asyncio.Protocol and the methods of the parser."""

    end: End

    def __init__(self, server: ModelServer, name: str) -> None:
        self._server, self._name = server, name
        self._random = server.schedule.draws.random(name)
        self._parser: Any = httptools.HttpRequestParser(self)
        self._headers: dict[str, str] = {}
        self._target = self._body = b""
        self.runs: Call | None = None

    def connection_made(self, transport: End) -> None:
        self.end = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def eof_received(self) -> None:
        """Close: a client needs both sides."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to send."""

    @property
    def is_open(self) -> bool:
        """True unless either side closes the connection."""
        return not (self.end.is_closing() or self.end.peer.is_closing())

    def pause_writing(self) -> None:
        """Its responses are small."""

    resume_writing = pause_writing

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        target, headers, body = self._target.decode(), self._headers, self._body
        self._target, self._headers, self._body = b"", {}, b""
        method = self._parser.get_method().decode()
        self._server.asked(self, method, target, headers, body)

    def answer(self, status: int, headers: dict[str, str], body: bytes, name: str = "") -> None:
        """Send a response; one with results may be cut, followed by other bytes, or none at all."""
        if self.end.is_closing():
            return
        is_relayed, self.runs = self.runs is not None and self.runs.form == "native", None
        is_last = bool(name) and self._server.fault(f"{name}.says_close", 0.05)
        if is_last:
            headers["connection"] = "close"
        if self._random.random() < 0.2:
            headers["transfer-encoding"] = "chunked"
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        else:
            headers["content-length"] = f"{len(body)}"
        lines = [f"HTTP/1.1 {status} X", *[f"{key}: {value}" for key, value in headers.items()], "", ""]
        raw = "\r\n".join(lines).encode() + body
        if name and self._server.fault(f"{name}.is_cut", 0.03):
            self.end.write(raw[: self._random.randrange(len(raw))])
            return self._random.choice([self.end.close, self.end.abort])()
        if name and self._server.fault(f"{name}.is_garbage", 0.02):
            nonsense = [b"\0" * 50, raw[9:], b"HTTP/1.1 200 X\r\ncontent-length: 3\r\n\r\n{]}"]
            raw = self._random.choice(nonsense[:2] if is_relayed else nonsense)
        # What arrives after the next request nobody can tell from its response.
        if name and not self.end.is_uneven and self._server.fault(f"{name}.is_twice", 0.03):
            raw += raw
        self.end.write(raw)
        if is_last or (name and self._server.fault(f"{name}.closes_after", 0.1)):
            self._server.schedule.loop.call_later(self._random.choice([0.0, 0.001, 1.0]), self.end.close)


def _read(target: str, headers: dict[str, str], body: bytes) -> Call:
    """Return the model, the rows and the form of a request.

    Raises:
        ValueError, KeyError, TypeError, struct.error: if it is malformed.
    """
    _, version, *path = target.split("/")
    if version not in ("v1", "v2"):
        row = json.loads(body)
        return Call(f"m.{version}", [_row(row)], "native")
    model = path[1].removesuffix(":predict")
    if version == "v2":
        size = int(headers.get(_JSON_LENGTH, len(body)))
        said, left = json.loads(body[:size]), body[size:]
        columns = {}
        for one in said["inputs"]:
            own = one.get("parameters", {}).get("binary_data_size", 0)
            block, left = left[:own], left[own:]
            columns[one["name"]] = one["data"] if "data" in one else _values(one["datatype"], block)
        is_binary = bool(said["parameters"]["binary_data_output"])
        return Call(model, _rows(columns, said["inputs"][0]["shape"][0]), "v2", is_binary)
    said = json.loads(body)
    rows = said["instances"] if "instances" in said else said["inputs"]
    if isinstance(rows, dict):
        return Call(model, _rows(rows, len(rows["n"])), "outputs")
    return Call(model, [_row(row) for row in rows], "predictions" if "instances" in said else "outputs")


def _row(row: Any) -> Row:
    return dict(row) if isinstance(row, dict) else row_of_values(row)


def _rows(columns: dict[str, Any], count: int) -> list[Row]:
    if "x" in columns:
        step = len(columns["x"]) // count
        return [row_of_values(columns["x"][at * step : (at + 1) * step]) for at in range(count)]
    return [{name: values[at] for name, values in columns.items()} for at in range(count)]


def _values(datatype: str, block: bytes) -> list[Any]:
    if datatype == "BYTES":
        return unprefixed(block)
    return [value for (value,) in struct.iter_unpack({"INT64": "<q", "BOOL": "?"}[datatype], block)]


def _written(call: Call, results: list[str]) -> tuple[dict[str, str], bytes]:
    """Return headers and body of a response with results."""
    if call.form == "native":
        return {"content-type": "application/json"}, json.dumps(results).encode()
    if call.form != "v2":
        return {"content-type": "application/json"}, json.dumps({call.form: results}).encode()
    output: dict[str, Any] = {"name": "y", "datatype": "BYTES", "shape": [len(results)]}
    if not call.is_binary:
        body = json.dumps({"model_name": call.model, "outputs": [output | {"data": results}]}).encode()
        return {"content-type": "application/json"}, body
    data = prefixed([result.encode() for result in results])
    output["parameters"] = {"binary_data_size": len(data)}
    text = json.dumps({"model_name": call.model, "outputs": [output]}).encode()
    return {"content-type": "application/octet-stream", _JSON_LENGTH: f"{len(text)}"}, text + data
