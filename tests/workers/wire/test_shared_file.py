"""Payloads in an in-memory file that two processes share."""

import os
import socket
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.file_sizes import file_size_limit
from uncork_workers.wire.frames import FrameError
from uncork_workers.wire.shared_file import MOST_BYTES, SharedFile, receive_with_file, send_with_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared files need Linux")

LEAST_BYTES = 128 * 1024
LARGE = b"x" * LEAST_BYTES


@pytest.fixture
def file() -> Iterator[SharedFile]:
    one = SharedFile.create()
    yield one
    one.close()


BODY = st.builds(lambda text, times: text * times, st.binary(max_size=20), st.integers(0, 8000))


@given(payloads=st.lists(st.lists(BODY, max_size=8), max_size=4))
def test_each_large_payload_is_read_as_it_was_written(payloads: list[list[bytes]]) -> None:
    """Also a short one after a long one; the file takes no small ones."""
    file = SharedFile.create()
    try:
        for number, bodies in enumerate(payloads):
            size = sum(map(len, bodies))
            assert file.write(bodies, number % 2) == (size >= LEAST_BYTES)
            if size >= LEAST_BYTES:
                assert file.read([len(body) for body in bodies], number % 2) == bodies
    finally:
        file.close()


def test_a_payload_of_very_many_bodies(file: SharedFile) -> None:
    """More than one system call takes."""
    bodies = [b"%100d " % number for number in range(2500)]
    assert file.write(bodies, 1)
    assert file.read([len(body) for body in bodies], 1) == bodies


def test_a_payload_beyond_the_limit_is_not_taken(file: SharedFile) -> None:
    part = bytes(MOST_BYTES // 2)
    assert file.write([part, part], 0)
    assert not file.write([part, part, b"x"], 0)


def test_the_halves_are_apart(file: SharedFile) -> None:
    """Also if the first is full."""
    one, other = [bytes(MOST_BYTES - 3), b"end"], [LARGE, b"other"]
    assert file.write(other, 1)
    assert file.write(one, 0)
    assert file.read([LEAST_BYTES, 5], 1) == other
    assert file.read([MOST_BYTES - 3, 3], 0) == one


@pytest.mark.parametrize("count", [1, 100])
def test_a_file_that_is_too_short_is_an_error(file: SharedFile, count: int) -> None:
    """With bodies that are read one by one, or together."""
    assert file.write([LARGE], 0)
    lengths = [len(LARGE) // count] * count + [100]
    with pytest.raises(FrameError, match=r"the shared file has 131072 bytes instead of 131\d\d\d"):
        file.read(lengths, 0)


@pytest.mark.parametrize("lengths", [[5, -1], [MOST_BYTES, 1]])
def test_no_file_has_such_lengths(file: SharedFile, lengths: list[int]) -> None:
    with pytest.raises(FrameError, match="at most 33554432 bytes, not lengths"):
        file.read(lengths, 0)


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_payload_for_which_there_is_no_memory_is_not_taken(file: SharedFile, limit: int) -> None:
    """With a limit of 1000 bytes, the system writes some of it."""
    with file_size_limit(limit):
        assert not file.write([LARGE], 0)
    assert file.write([LARGE], 0)


def test_a_file_is_passed_on_with_bytes(file: SharedFile) -> None:
    """No process that the receiver starts inherits it; bytes without a file come with none."""
    assert file.write([LARGE], 0)
    sender, receiver = socket.socketpair()
    with sender, receiver:
        send_with_file(sender.fileno(), b"take this", file)
        data, passed = receive_with_file(receiver, 100)
        assert (data, passed is not None) == (b"take this", True)
        assert passed is not None
        assert not os.get_inheritable(passed.descriptor)
        assert passed.read([len(LARGE)], 0) == [LARGE]
        passed.close()

        sender.sendall(b"more")
        assert receive_with_file(receiver, 100) == (b"more", None)
