"""The Unix socket for clients: who may use it, and what happens to a file that is there already."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from uncork.server.unix_listener import unix_listener


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def refusal(path: Path) -> str:
    with pytest.raises(OSError, match=r"; choose another --uds$") as refused, unix_listener(path):
        pass
    return str(refused.value)


def test_it_is_for_user_and_group_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with unix_listener(path):
        assert stat.S_IMODE(path.lstat().st_mode) == 0o660
        assert connects(path)
    assert not path.exists()


def test_what_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as killed:
        killed.bind(str(path))
    assert path.exists()

    with unix_listener(path):
        assert connects(path)


def test_a_server_that_listens_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with unix_listener(path):
        assert f"cannot listen on {path}: another server listens there" in refusal(path)
        assert connects(path)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_no_other_file_is_removed(tmp_path: Path, kind: str) -> None:
    path, target = tmp_path / "s", tmp_path / "target"
    target.write_text("precious")
    match kind:
        case "file":
            path.write_text("precious")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(target)

    assert "the file is not a socket, so it was left in place" in refusal(path)
    assert path.exists()
    assert target.read_text() == "precious"


def test_a_place_without_room_is_told(tmp_path: Path) -> None:
    assert "No such file or directory" in refusal(tmp_path / "missing" / "s")
    assert "path too long" in refusal(tmp_path / ("s" * 200))


def test_the_socket_of_a_successor_stays(tmp_path: Path) -> None:
    """If somebody removes the file, another server may listen at the path before the first one ends."""
    path = tmp_path / "s"
    with unix_listener(path):
        path.unlink()
        successor = unix_listener(path)
        successor.__enter__()
    assert connects(path)
    successor.__exit__(None, None, None)
    assert not path.exists()
    with unix_listener(path):
        path.unlink()
