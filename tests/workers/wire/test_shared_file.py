"""Payloads in an in-memory file that two processes share."""

import os
import resource
import socket
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_workers.wire.frames import FrameError
from uncork_workers.wire.shared_file import MOST_BYTES, SharedFile, receive_with_file, send_with_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared files need Linux")


@pytest.fixture
def file() -> Iterator[SharedFile]:
    one = SharedFile.create()
    yield one
    one.close()


@given(payloads=st.lists(st.lists(st.binary(max_size=20), max_size=8), max_size=4))
def test_each_payload_is_read_as_it_was_written(payloads: list[list[bytes]]) -> None:
    """Also a short one after a long one."""
    file = SharedFile.create()
    try:
        for bodies in payloads:
            file.write(bodies)
            assert file.read(sum(map(len, bodies))) == b"".join(bodies)
    finally:
        file.close()


def test_a_batch_of_very_many_bodies(file: SharedFile) -> None:
    """More than one system call takes."""
    bodies = [b"%d " % number for number in range(2500)]
    file.write(bodies)
    assert file.read(sum(map(len, bodies))) == b"".join(bodies)


def test_a_file_that_is_too_short_is_an_error(file: SharedFile) -> None:
    file.write([b"abc"])
    with pytest.raises(FrameError, match="the shared file has 3 bytes instead of 4"):
        file.read(4)


@pytest.mark.parametrize("count", [-1, MOST_BYTES + 1])
def test_no_file_has_such_a_size(file: SharedFile, count: int) -> None:
    with pytest.raises(FrameError, match=f"a payload of {count} bytes cannot be"):
        file.read(count)


@pytest.mark.parametrize("limit", [0, 100])
def test_a_file_that_takes_no_more_is_an_error(file: SharedFile, limit: int) -> None:
    """With a limit of 100 bytes, the system writes some of the 200."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(OSError, match=r"large|is full"):
            file.write([b"x" * 200])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_is_passed_on_with_bytes(file: SharedFile) -> None:
    """No process that the receiver starts inherits it; bytes without a file come with none."""
    file.write([b"payload"])
    sender, receiver = socket.socketpair()
    with sender, receiver:
        send_with_file(sender.fileno(), b"take this", file)
        data, passed = receive_with_file(receiver, 100)
        assert (data, passed is not None) == (b"take this", True)
        assert passed is not None
        assert not os.get_inheritable(passed.descriptor)
        assert passed.read(7) == b"payload"
        passed.close()

        sender.sendall(b"more")
        assert receive_with_file(receiver, 100) == (b"more", None)
