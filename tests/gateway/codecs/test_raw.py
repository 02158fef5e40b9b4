"""The codec of raw bodies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_gateway.codecs import Marshalled, make_codec
from uncork_gateway.codecs.cost import make_weigh
from uncork_gateway.codecs.raw import RawCodec
from uncork_gateway.errors import BadRequest, UnsupportedMediaType
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.definition.adapters import Adapter, File, Image, Requests
from uncork_workers.wire.forms import RawForm
from uncork_workers.wire.messages import Meta

IMAGES = RawCodec(accepts=["image/*", "multipart/form-data"])


@pytest.mark.parametrize("adapter", [File(), File(parts=["a"]), Image(), Requests()])
def test_it_is_the_codec_of_all_whose_bodies_only_the_worker_reads(adapter: Adapter) -> None:
    codec = make_codec(adapter.describe(), "bytes")

    assert isinstance(codec, RawCodec)
    assert codec.decode(b"1234", adapter.describe()["accepts"][0]).cost.total == 4


@given(body=st.binary())
def test_any_body_is_one_row_and_travels_as_it_came(body: bytes) -> None:
    """All bodies share batches; each keeps its content type."""
    assert RawCodec(accepts=["*"]).decode(body, "a/b") == Marshalled(
        body, rows=1, form=RawForm(), meta=Meta(content_type="a/b")
    )


@pytest.mark.parametrize("media_type", ["image/png", "image/x-new", "image/*", "multipart/form-data"])
def test_what_the_adapter_takes_is_accepted(media_type: str) -> None:
    assert IMAGES.decode(b"", media_type).rows == 1


@pytest.mark.parametrize("media_type", ["application/json", "multipart/mixed", "imagery/png", "", "text/*"])
def test_other_media_types_are_refused(media_type: str) -> None:
    """The error lists the accepted types."""
    with pytest.raises(UnsupportedMediaType, match=r"is not accepted; send image/\* or multipart/form-data$"):
        IMAGES.decode(b"", media_type)


@pytest.mark.parametrize("accepts", [["*"], ["image/*", "multipart/form-data"], ["a/b", "*"]])
def test_what_is_assumed_is_accepted(accepts: list[str]) -> None:
    """The first type is the adapter's; the wildcard makes dialects keep all headers."""
    codec = RawCodec(accepts=accepts)

    assert codec.accepts[0] == accepts[0]
    assert codec.accepts[-1] == "*"
    assert codec.accepts.count("*") == 1
    assert codec.decode(b"", codec.accepts[0]).rows == 1


@pytest.mark.parametrize(
    ("accepts", "named"),
    [(["*"], "bodies of any type"), (["a/b", "c/d"], "a/b or c/d"), (["a/b", "*"], "a/b or bodies of any")],
)
def test_rows_of_other_protocols_are_refused(accepts: list[str], named: str) -> None:
    with pytest.raises(
        BadRequest, match=f"^this API accepts {named}.*, and only at its own route$|only at its own"
    ):
        RawCodec(accepts=accepts).marshal([b"1"])
    tensor = Tensor(name="x", datatype="INT8", shape=(1,), form="binary", data=b"1")
    with pytest.raises(BadRequest, match=f"^this API accepts {named}"):
        RawCodec(accepts=accepts).marshal_tensor(tensor)


@pytest.mark.parametrize(("cost", "expected"), [(None, (None, None)), (2.5, (2.5, 2.5)), ("bytes", (4, 1))])
def test_bodies_are_weighed(cost: float | str | None, expected: tuple[float | None, float | None]) -> None:
    """The cost is a number or the body's length, and never 0."""
    codec = RawCodec(make_weigh(cost), accepts=["*"])

    assert (codec.decode(b"1234", "a/b").cost.total, codec.decode(b"", "a/b").cost.total) == expected
