"""What a generator process writes to its standard output: frames of msgpack, each behind its length."""

from collections.abc import Callable

import msgspec
import numpy as np

from uncork_loadtests.generator.samples import SAMPLE, Samples
from uncork_loadtests.generator.share import Progress, ShareResult

_LENGTH_BYTES = 4


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a generator."""

    ready: bool = False
    """The generator is connected and waits for the start."""
    progress: Progress | None = None
    samples: bytes = b""
    """New samples, as they lie in memory."""
    result: ShareResult | None = None
    """In the last frame of a generator that succeeded."""
    failed: str = ""
    """Why there is no result."""


def samples_of(frame: Frame) -> Samples:
    """Return the samples in a frame."""
    return np.frombuffer(frame.samples, dtype=SAMPLE)


def encode(frame: Frame) -> bytes:
    """Write a frame behind its length."""
    body = msgspec.msgpack.encode(frame)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def read_frame(read: Callable[[int], bytes]) -> Frame:
    """Read a frame with `read`, which returns fewer bytes than asked for only at the end of the input.

    An input that ends without a last frame gives a frame that says so.
    """
    head = read(_LENGTH_BYTES)
    length = int.from_bytes(head, "big")
    body = read(length) if len(head) == _LENGTH_BYTES else b""
    if not body or len(body) < length:
        return Frame(failed="a load generator exited early")
    return msgspec.msgpack.decode(body, type=Frame)
