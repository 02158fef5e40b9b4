"""The heads of calls: decodes header blocks (HPACK), and reads the headers that gRPC defines."""

import re
from collections.abc import Iterable

from hpack import Decoder, HPACKError, OversizedHeaderListError

from uncork_gateway.connection.client_limits import too_many_fields
from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.http2.frames import ConnectionFault, ErrorCode, StreamFault
from uncork_gateway.grpc.interfaces import CallHead
from uncork_gateway.grpc.statuses import CallFailed, Code
from uncork_gateway.headers import HOP_BY_HOP, Header, request_id_of, value_of

MAX_LIST_BYTES = 16 * 1024
"""The largest header list, as HPACK counts it: 32 bytes more for each field."""
ACCEPTED_ENCODINGS = b"identity,deflate,gzip"
_ENCODINGS = (b"gzip", b"deflate")

_MAX_KNOWN_BYTES = 16 * 1024
_MAX_KNOWN_BLOCK_BYTES = 1024
_MAX_CANDIDATES = 64
# What HPACK counts for a field, beside its name and value.
_FIELD_BYTES = 32
# RFC 9113, section 8.2.1.
_NAME = re.compile(rb":?[\x21-\x39\x3b-\x40\x5b-\x7e]+")
_WRONG_IN_VALUE = re.compile(rb"[\0\r\n]")
# More changes of the table's size than RFC 7541, section 4.2, allows. Each takes as long as a field.
_RESIZES = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*[\x00-\x7f]){3}")
_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_REQUIRED = (b":method", b":scheme", b":path")
_OF_GRPC = frozenset(
    (b"te", b"content-type", b"content-length", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding")
)
# Python refuses to convert numbers of thousands of digits.
_LENGTH = re.compile(rb"[0-9]{1,18}")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


class HeadReader:
    """Decodes the header blocks of a connection, and caches repeated ones.

    Clients send the same block for each call of a kind. A block's meaning depends on HPACK's dynamic table; a
    block that inserts nothing into the table keeps its meaning until another block changes the table. Most
    blocks are therefore never decoded. A block is cached when it comes for the second time, if its call was
    admitted: blocks with a trace id would only displace others.

    ``max_fields`` is the most fields of one call.

    Attributes:
        known: the cached heads by their blocks.
        decoded: the number of fields of the last block; 0 if it was cached.
        decoded_bytes: the size of the last block; 0 if it was cached.
    """

    def __init__(self, *, max_fields: int) -> None:
        self._max_fields = max_fields
        self.decoded = self.decoded_bytes = 0
        self._decoder = Decoder(max_header_list_size=MAX_LIST_BYTES)
        self.known: dict[bytes, CallHead] = {}
        self._candidates: set[int] = set()
        self._known_bytes = 0
        self._has_changed = False
        """True if the last block changed the table."""
        self._fresh: tuple[bytes, CallHead, int] | None = None
        """The last block, its head and size, if it was decoded and did not change the table."""

    def read(self, block: bytes) -> CallHead:
        """Read the head of a new stream.

        Raises:
            ConnectionFault: if the block is broken or too large.
            StreamFault: if the fields break a rule.
        """
        head = self.known.get(block)
        if head is not None:
            self.decoded, self.decoded_bytes, self._fresh = 0, 0, None
            return head
        fields = self.decode(block)
        if len(fields) > self._max_fields:
            rejection = too_many_fields(self._max_fields)
            return CallHead(value_of(fields, b":path") or b"", rejection=rejection)
        head = read_head(fields)
        if not self._has_changed and len(block) <= _MAX_KNOWN_BLOCK_BYTES:
            size = sum([len(name) + len(value) + _FIELD_BYTES for name, value in fields])
            self._fresh = block, head, size
        return head

    def decode(self, block: bytes) -> list[Header]:
        """Decode a block. Call this for every block that is not cached, because it may change the table.

        Raises:
            ConnectionFault: if the block is broken or too large.
        """
        if _RESIZES.match(block):
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "a block resizes the header table too often")
        before, self.decoded, self.decoded_bytes, self._fresh = self._table(), 0, len(block), None
        try:
            fields: list[Header] = list(self._decoder.decode(block, raw=True))
        except OversizedHeaderListError:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, f"the headers exceed {MAX_LIST_BYTES} bytes"
            ) from None
        except (HPACKError, IndexError) as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, f"broken header block: {error}") from None
        after = self._table()
        self._has_changed = before[0] is not after[0] or before[1:] != after[1:]
        if self._has_changed:
            self._forget()
            self._candidates.clear()
        self.decoded = len(fields)
        return fields

    def _table(self) -> tuple[object, int, int]:
        """Return the newest entry, length and size of the dynamic table. Compare the entry by identity."""
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return (entries[0] if entries else None, len(entries), table.maxsize)

    def admitted(self) -> None:
        """Cache the head that was read last, if its block has come before."""
        if self._fresh is None:
            return
        (block, head, size), self._fresh = self._fresh, None
        key = hash(block)
        if key in self._candidates:
            if self._known_bytes + size > _MAX_KNOWN_BYTES:
                self._forget()
            self.known[block] = head
            self._known_bytes += size
        else:
            if len(self._candidates) >= _MAX_CANDIDATES:
                self._candidates.clear()
            self._candidates.add(key)

    def _forget(self) -> None:
        self.known.clear()
        self._known_bytes = 0


def read_head(fields: Iterable[Header]) -> CallHead:
    """Check the fields of a request, and read the fields that gRPC defines.

    Raises:
        StreamFault: if the fields break a rule.
    """
    pseudo: dict[bytes, bytes] = {}
    own: dict[bytes, bytes] = {}
    metadata: list[Header] = []
    for name, value in fields:
        _check_field(name, value)
        value = value.strip(b" \t")
        if name.startswith(b":"):
            if name not in _PSEUDO or name in pseudo or own or metadata:
                raise _malformed(f"{name!r} is unknown, comes twice or too late")
            pseudo[name] = value
        elif name in _OF_GRPC:
            own[name] = value
        else:
            metadata.append((name, value))
    if any(not pseudo.get(name) for name in _REQUIRED):
        raise _malformed("a request has :method, :scheme and :path")
    length = own.get(b"content-length")
    if own.get(b"te", b"trailers") != b"trailers" or not (length is None or _LENGTH.fullmatch(length)):
        raise _malformed("te or content-length")
    status = 0
    if not _is_grpc(own.get(b"content-type", b"")):
        status = 415
    if pseudo[b":method"] != b"POST":
        status = 405
    encoding = own.get(b"grpc-encoding", b"").lower()
    head = CallHead(
        pseudo[b":path"],
        encoding=b"" if encoding == b"identity" else encoding,
        metadata=tuple(metadata),
        request_id=request_id_of(metadata),
        http_status=status,
        is_http_head=pseudo[b":method"] == b"HEAD",
        length=-1 if length is None else int(length),
    )
    if head.encoding and head.encoding not in _ENCODINGS:
        return head._replace(rejection=_unknown_encoding(head.encoding))
    return _with_timeout(head, own.get(b"grpc-timeout"))


def check_trailers(fields: Iterable[Header]) -> None:
    """Check a client's trailers, which gRPC ignores; raises as :func:`read_head`."""
    for name, value in fields:
        _check_field(name, value)
        if name.startswith(b":"):
            raise _malformed("a trailer begins with a colon")


def _check_field(name: bytes, value: bytes) -> None:
    if _NAME.fullmatch(name) is None or name in HOP_BY_HOP or _WRONG_IN_VALUE.search(value):
        raise _malformed(f"field {name!r}")


def _malformed(why: str) -> StreamFault:
    """Return the fault for header fields that break a rule of RFC 9113, section 8."""
    return StreamFault(ErrorCode.PROTOCOL_ERROR, why)


def _is_grpc(content_type: bytes) -> bool:
    start, rest = content_type[:16].lower(), content_type[16:17]
    return start == b"application/grpc" and rest in (b"", b"+", b";", b" ")


def _with_timeout(head: CallHead, timeout: bytes | None) -> CallHead:
    if timeout is None:
        return head
    match = _TIMEOUT.fullmatch(timeout)
    if match is not None:
        return head._replace(timeout_s=int(match[1]) * _UNITS_S[match[2]])
    text = "grpc-timeout must be up to eight digits and one of H, M, S, m, u, n, "
    return head._replace(rejection=BadRequest(f"{text}got {timeout[:100].decode('latin-1')!r}"))


def _unknown_encoding(encoding: bytes) -> CallFailed:
    named = encoding[:100].decode("latin-1")
    return CallFailed(
        f"grpc-encoding {named!r} is not supported; send gzip, deflate or identity",
        Code.UNIMPLEMENTED,
        ((b"grpc-accept-encoding", ACCEPTED_ENCODINGS),),
    )
