"""Valid requests to the examples, for every kind of input and protocol."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from google.protobuf.message import Message

_JSON = (b"Content-Type", b"application/json")
PIXELS = [float(value % 17) for value in range(64)]
WINE = {
    "alcohol": 14.2, "malic_acid": 1.7, "ash": 2.4, "alcalinity_of_ash": 15.6, "magnesium": 127.0,
    "total_phenols": 2.8, "flavanoids": 3.1, "nonflavanoid_phenols": 0.3, "proanthocyanins": 2.3,
    "color_intensity": 5.6, "hue": 1.0, "od280_per_od315_of_diluted_wines": 3.9, "proline": 1065.0,
}  # fmt: skip
_BOUNDARY = b"----fuzz"
_BATCHED_SHARE = 0.8


class Seed(NamedTuple):
    """A request in parts; its headers do not include the length."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""

    @property
    def is_json(self) -> bool:
        """Whether the body is one JSON document."""
        return _JSON in self.headers and self.body[:1] in (b"{", b"[")

    @property
    def is_batched(self) -> bool:
        return self.method == b"POST"


class CallSeed(NamedTuple):
    """A call over gRPC.

    Attributes:
        messages: one, unless the client may send more.
        ends: whether the server ends the call after the client's last message.
    """

    path: bytes
    messages: tuple[Message, ...]
    ends: bool = True

    @property
    def is_batched(self) -> bool:
        return b"Infer" in self.path or b"/Predict" in self.path


S = TypeVar("S", Seed, CallSeed)


class Example(NamedTuple, Generic[S]):
    """A service, and requests or calls to it; the answer to the first is compared."""

    target: str
    seeds: tuple[S, ...]

    def draw(self, random: Random) -> S:
        """Return a random one, usually one that is batched."""
        batched = [seed for seed in self.seeds if seed.is_batched]
        return random.choice(batched if random.random() < _BATCHED_SHARE else self.seeds)


def digits() -> Example[Seed]:
    """Arrays: JSON, .npy, and as tensors in all protocols."""
    row, rows = PIXELS, [PIXELS, PIXELS[::-1]]
    tensor = {"name": "x", "shape": [2, 64], "datatype": "FP32"}
    raw = np.array(rows, dtype="<f4").tobytes()
    head = _text({"inputs": [{**tensor, "parameters": {"binary_data_size": len(raw)}}]})
    binary = ((b"Inference-Header-Content-Length", str(len(head)).encode()),)
    return Example(
        "examples/digits/service.py:Digits",
        (
            _json("/predict", row),
            _json("/predict_proba", rows),
            Seed(b"POST", b"/predict", ((b"Content-Type", b"application/x-npy"),), _npy(rows)),
            _json("/v1/models/digits:predict", {"instances": rows}),
            _json("/v1/models/digits/versions/1:predict", {"inputs": rows, "signature_name": "any"}),
            _json("/v1/models/digits.predict_proba:predict", {"instances": [{"x": row}]}),
            _json("/v2/models/digits/infer", {"id": "1", "inputs": [{**tensor, "data": row + row}]}),
            Seed(b"POST", b"/v2/models/digits/infer", binary, head + raw),
            _json(
                "/v2/models/digits/versions/1/infer",
                {
                    "inputs": [{**tensor, "data": rows}],
                    "outputs": [{"name": "output-0", "parameters": {"binary_data": True}}],
                },
            ),
            *_pages("digits"),
        ),
    )


def wine() -> Example[Seed]:
    """Tables: CSV, JSON in all its forms, and as tensors by column."""
    names, values = list(WINE), list(WINE.values())
    csv = f"{','.join(names)}\n{','.join(map(str, values))}\n".encode()
    columns = [
        {"name": name, "shape": [1], "datatype": "FP64", "data": [value]} for name, value in WINE.items()
    ]
    return Example(
        "examples/wine/service.py:Wine",
        (
            Seed(
                b"POST", b"/grower", ((b"Content-Type", b"text/csv"), (b"Accept", b"application/json")), csv
            ),
            Seed(b"POST", b"/grower", ((b"Content-Type", b"text/csv; charset=utf-8"),), csv),
            _json("/grower", WINE),
            _json("/grower", [WINE, WINE]),
            _json("/grower", {"columns": names, "data": [values, values], "index": [0, 1]}),
            _json("/grower", {name: [value, value] for name, value in WINE.items()}),
            _json("/v1/models/wine:predict", {"instances": [WINE]}),
            _json("/v1/models/wine:predict", {"inputs": {name: [value] for name, value in WINE.items()}}),
            _json("/v2/models/wine/infer", {"inputs": columns}),
            *_pages("wine"),
        ),
    )


def thumbnails() -> Example[Seed]:
    """Images: as the whole body, and as part of a form."""
    image = _png()
    part = (
        b'Content-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    )
    form = b"--%b\r\n%b%b\r\n--%b--\r\n" % (_BOUNDARY, part, image, _BOUNDARY)
    form_type = (b"Content-Type", b"multipart/form-data; boundary=" + _BOUNDARY)
    return Example(
        "examples/thumbnails/service.py:Thumbnails",
        (
            Seed(b"POST", b"/square", ((b"Content-Type", b"image/png"),), image),
            Seed(b"POST", b"/square", ((b"Content-Type", b"image/png"), (b"Accept", b"image/jpeg")), image),
            Seed(b"POST", b"/square", (form_type,), form),
            *_pages("thumbnails"),
        ),
    )


def sentiment() -> Example[Seed]:
    """Whole requests: any body, with headers and query."""
    text = (b"Content-Type", b"text/plain; charset=latin-1")
    return Example(
        "examples/cortex_style/service.py:Sentiment",
        (
            _json("/handle_post", {"text": "a good wine"}),
            _json("/handle_post?as=text&x=%41", {"text": "poor and awful"}),
            Seed(b"POST", b"/handle_post", (text,), b"good \xe9"),
            Seed(
                b"POST",
                b"/handle_post",
                ((b"Content-Type", b"application/x-www-form-urlencoded"),),
                b"text=a",
            ),
            *_pages("sentiment"),
        ),
    )


EXAMPLES: Mapping[str, Callable[[], Example[Seed]]] = {
    "digits": digits,
    "wine": wine,
    "thumbnails": thumbnails,
    "sentiment": sentiment,
}


def _json(target: str, value: Any) -> Seed:
    return Seed(b"POST", target.encode(), (_JSON,), _text(value))


def _text(value: Any) -> bytes:
    return json.dumps(value).encode()


def _pages(model: str) -> list[Seed]:
    paths = (
        "/livez", "/readyz", "/healthz", "/ping", "/metrics", "/openapi.json", "/v2", "/v2/health/ready",
        "/v1/models", f"/v1/models/{model}", f"/v2/models/{model}", f"/v2/models/{model}/ready",
    )  # fmt: skip
    return [Seed(b"GET", path.encode()) for path in paths]


def _npy(rows: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(rows, dtype=np.float32))
    return file.getvalue()


def _png() -> bytes:
    from PIL import Image  # pillow is an extra

    file = io.BytesIO()
    Image.new("RGB", (20, 10), "red").save(file, "PNG")
    return file.getvalue()
