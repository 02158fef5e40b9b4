"""Arrays in NumPy's file format, in and out."""

import io
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from uncork_gateway.codecs.npy import decode_npy, encode_npy
from uncork_gateway.errors import BadRequest

ARRAYS = npst.arrays(
    st.sampled_from(["?", "<i1", ">i2", "<i4", ">i8", "<u1", ">u2", "<u8", "<f2", ">f4", "<f8"]),
    npst.array_shapes(min_dims=0, max_dims=4, max_side=3),
)


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def file(header: str, data: bytes = b"", *, version: bytes = b"\1\0") -> bytes:
    """Return an .npy file with an arbitrary header."""
    text = header.encode("latin-1") + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2 if version[0] == 1 else 4, "little") + text + data


@given(array=ARRAYS, single=st.booleans(), fortran=st.booleans())
def test_an_array_comes_back_as_it_was(array: np.ndarray[Any, Any], single: bool, fortran: bool) -> None:
    """Rows become little-endian and contiguous, whatever the byte order and layout."""
    if array.ndim == 0 and not single:
        array = array.reshape(1)
    body = saved(np.asarray(array, order="F" if fortran else "C"))

    tensor, was_single = decode_npy(body, row_axes=array.ndim if single else array.ndim - 1)

    assert was_single == single
    assert tensor.shape == ((1, *array.shape) if single else array.shape)
    answer = encode_npy(tensor.data, datatype=tensor.datatype, shape=tensor.shape, single=single)
    back = np.load(io.BytesIO(answer))
    np.testing.assert_array_equal(back, array)
    assert (back.dtype, back.shape) == (array.dtype.newbyteorder("<"), array.shape)


def test_bfloat16_becomes_float32() -> None:
    """NumPy reads no other file."""
    short = np.array([[1.5, -2], [np.inf, 0.1]], ml_dtypes.bfloat16)

    back = np.load(io.BytesIO(encode_npy(short.tobytes(), datatype="BF16", shape=(2, 2), single=False)))

    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, short.astype("f4"))


def test_rows_without_values_can_be_answered() -> None:
    """A handler may return empty rows."""
    many = encode_npy(b"", datatype="FP32", shape=(3, 0), single=False)
    one = encode_npy(b"", datatype="FP32", shape=(1, 0), single=True)

    assert np.load(io.BytesIO(many)).shape == (3, 0)
    assert np.load(io.BytesIO(one)).shape == (0,)


GOOD = "{'descr': '<f8', 'fortran_order': False, 'shape': %s}"


WORDS = st.sampled_from(
    ["{", "}", "(", ")", "'descr'", ":", ",", "'<f8'", "True", "-", "1", "\n ", "'shape'", "L"]
)
HEADERS = st.lists(WORDS, max_size=12).map("".join) | st.text(st.characters(max_codepoint=255), max_size=40)
SHAPES = st.lists(st.integers(-1, 3) | st.just(True), max_size=3).map(lambda shape: GOOD % (tuple(shape),))


@given(
    body=st.builds(
        file, HEADERS | SHAPES, st.binary(max_size=24), version=st.sampled_from([b"\1\0", b"\2\0"])
    )
    | st.binary(max_size=20),
    row_axes=st.integers(0, 2),
)
def test_any_bytes_are_read_or_refused(body: bytes, row_axes: int) -> None:
    """Malformed input raises only BadRequest."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers that Python 2 wrote
            tensor, _ = decode_npy(body, row_axes=row_axes)
    except BadRequest:
        return
    assert (tensor.datatype, len(tensor.shape)) == ("FP64", 1 + row_axes)
    assert all(type(length) is int for length in tensor.shape)
    assert len(tensor.data) == 8 * int(np.prod(tensor.shape))


def test_a_dtype_is_refused_before_its_values_are_converted() -> None:
    """Texts without characters take no bytes in the file, whatever their number, but some in memory."""
    body = file("{'descr': '>U0', 'fortran_order': True, 'shape': (10, 10)}")

    with pytest.raises(BadRequest, match=r"^dtype >U0 is not supported; send booleans, integers or floats$"):
        decode_npy(body, row_axes=0)
