"""The dialect of our own routes: bodies in the form of the API's input, errors in the API's format."""

from collections.abc import Sequence

from msgspec.structs import replace
from mypy_extensions import mypyc_attr

from uncork_gateway.codecs import Codec, Marshalled
from uncork_gateway.codecs.npy import encode_npy
from uncork_gateway.codecs.text import to_utf8
from uncork_gateway.dialects.accept import choose
from uncork_gateway.dialects.base import JSON, HandlerResult, Reply
from uncork_gateway.errors import ERROR_WRITERS, GatewayError, HandlerFailed, UnsupportedMediaType
from uncork_gateway.headers import Header, header_lines
from uncork_workers.wire.forms import RawForm, TensorForm
from uncork_workers.wire.messages import Meta
from uncork_workers.wire.schema import JSON as JSON_TYPE
from uncork_workers.wire.schema import NPY, ErrorFormat

_NPY = b"content-type: %b\r\n" % NPY.encode()
_CONTENT_TYPE, _ACCEPT, _TARGET = b"content-type", b"accept", b":target"
_ANY = "*"


@mypyc_attr(allow_interpreted_subclasses=True)
class Native:
    """The dialect of our own routes.

    Args:
        offers: media types of responses; the first is the default.
        errors: the format of error bodies.
    """

    def __init__(
        self, codec: Codec, *, offers: Sequence[str] = (JSON_TYPE,), errors: ErrorFormat = "problem"
    ) -> None:
        self._codec = codec
        self._offers = offers
        media_type, self._write_error = ERROR_WRITERS[errors]
        self._error_head = header_lines([(_CONTENT_TYPE, media_type.encode())])

    def keep(self, headers: Sequence[Header], target: bytes) -> tuple[Header, ...]:
        """Return nothing if the request has the default form; else the target and all headers."""
        lower = [(name.lower(), value) for name, value in headers]
        media_type = _media_type(lower)
        accepts = self._codec.accepts
        if media_type and media_type not in accepts and _ANY not in accepts:
            raise UnsupportedMediaType(
                f"content type {media_type!r} is not accepted; send {' or '.join(accepts)}"
            )
        accept = choose([value for name, value in lower if name == _ACCEPT], self._offers)
        if accept == JSON_TYPE:
            accept = ""  # the default, so that batches are shared with clients of other protocols
        if media_type in ("", accepts[0]) and not accept and _ANY not in accepts and not _charset(lower):
            return ()
        kept = [header for header in lower if header[0] != _ACCEPT]
        return (*kept, (_ACCEPT, accept.encode()), (_TARGET, target))

    def read(self, body: bytes, headers: tuple[Header, ...]) -> Marshalled:
        if not headers:
            return self._codec.decode(body, self._codec.accepts[0])
        assumed = self._codec.accepts[0]
        if _charset(headers) and _ANY not in self._codec.accepts:
            body = to_utf8(body, _content_type(headers))
        asked = self._codec.decode(body, _media_type(headers) or assumed)
        if isinstance(asked.form, RawForm):
            asked = replace(asked, meta=_meta(headers, assumed))
        accept = dict(headers)[_ACCEPT].decode()
        if accept == NPY:
            return replace(asked, raw="npy")
        return replace(asked, accept=accept) if accept else asked

    def write(self, reply: HandlerResult, asked: Marshalled, *, batch_id: str) -> Reply:
        """Return a complete response unchanged, an array as .npy, and other rows as JSON."""
        if reply.content_type:
            own = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers]
            head = header_lines([*own, (_CONTENT_TYPE, reply.content_type.encode("latin-1"))])
            lines = len(own) + 1
            if (head.count(b"\r"), head.count(b"\n"), head.count(b"\0")) != (lines, lines, 0):
                raise HandlerFailed("the handler returned a header with a line break or NUL")
            return head, reply.body
        if isinstance(reply.form, TensorForm):
            shape = (asked.rows, *reply.form.shape)
            array = encode_npy(reply.body, datatype=reply.form.datatype, shape=shape, single=asked.single)
            return _NPY, array
        return JSON, asked.json_answer(reply.body)

    def error(self, error: GatewayError, request_id: bytes = b"") -> Reply:
        return self._error_head, self._write_error(error.status, str(error), error.reason, request_id)


def _media_type(headers: Sequence[Header]) -> str:
    """Return the media type of the body, in lower case and without parameters; empty if there is none."""
    return _content_type(headers).partition(";")[0].strip().lower()


def _content_type(headers: Sequence[Header]) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == _CONTENT_TYPE), "")


def _charset(headers: Sequence[Header]) -> bool:
    """True if the body is text and names its charset; false for JSON, which is always UTF-8."""
    content_type = _content_type(headers).lower()
    return content_type.startswith("text/") and "charset" in content_type


def _meta(headers: Sequence[Header], assumed: str) -> Meta:
    """Return the headers and query that the handler may read; ``assumed`` is the default content type."""
    target = next(value for name, value in headers if name == _TARGET)
    return Meta(
        content_type=_content_type(headers) or assumed,
        query=target.partition(b"?")[2].decode("latin-1"),
        headers=tuple(
            [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in headers
                if name not in (_TARGET, _ACCEPT)
            ]
        ),
    )
