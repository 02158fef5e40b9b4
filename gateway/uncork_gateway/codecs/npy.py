"""NumPy's file format ``.npy``: one array, preceded by its dtype and shape."""

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from uncork_dispatcher.wording import plural
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.wire.tensors import LAYOUTS, widened

_DATATYPES = {np.dtype(layout): datatype for datatype, layout in LAYOUTS.items() if datatype != "BF16"}

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def decode_npy(body: bytes, *, row_axes: int) -> tuple[Tensor, bool]:
    """Return the rows as a binary tensor, and True if the body was one row without the leading axis.

    Raises:
        BadRequest: if the body is not a .npy file, holds objects or text, or has the wrong number of axes.
    """
    array = _read(body)
    # Before values are converted: a file of a few bytes has any number of texts without characters.
    dtype = array.dtype.newbyteorder("<")
    datatype = _DATATYPES.get(dtype)
    if datatype is None:
        raise BadRequest(f"dtype {array.dtype} is not supported; send booleans, integers or floats")
    array = array.astype(dtype, order="C", copy=False)
    single = array.ndim == row_axes
    if not single and array.ndim != row_axes + 1:
        raise BadRequest(
            f"expected an array with {plural(row_axes, 'axis', 'axes')} for one row or {row_axes + 1} for "
            f"several rows, got {array.ndim}"
        )
    if not array.size:
        raise BadRequest("the array is empty; send at least one row with values")
    shape = (1, *array.shape) if single else array.shape
    tensor = Tensor(name="body", datatype=datatype, shape=shape, form="binary", data=array.tobytes())
    return tensor, single


def _read(body: bytes) -> np.ndarray[Any, Any]:
    """Return a view of the body as an array; NumPy's own reader allocates any size the header claims."""
    file = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(file)
        read_header = _HEADERS.get(version)
        if read_header is None:
            raise ValueError(f"format version {version[0]}.{version[1]} is not supported; send 1.0 or 2.0")
        shape, fortran_order, dtype = read_header(file)
        start, size = file.tell(), math.prod(shape) * dtype.itemsize
        if dtype.hasobject:
            raise ValueError("arrays of Python objects are not supported")
        if any(axis < 0 for axis in shape):
            raise ValueError(f"the shape {shape} has a negative number")
        if start + size != len(body):
            raise ValueError(
                f"expected {plural(size, 'byte')} of values after the header, got {len(body) - start}"
            )
        return np.ndarray(shape, dtype, body, start, order="F" if fortran_order else "C")
    except Exception as error:  # the header is a Python literal, and reading it may raise anything
        raise BadRequest(f"the body is not a valid .npy file: {error}") from error


def encode_npy(rows: bytes, *, datatype: str, shape: Sequence[int], single: bool) -> bytes:
    """Return binary rows as a .npy file, BF16 as float32.

    ``shape`` includes the leading axis, which ``single`` removes.
    """
    array = np.frombuffer(rows, LAYOUTS[datatype]).reshape(shape)
    if datatype == "BF16":
        array = widened(array)
    file = io.BytesIO()
    np.save(file, array[0] if single else array, allow_pickle=False)
    return file.getvalue()
