"""The helper process for Ray, without a cluster."""

import io
import weakref
from pathlib import Path

import pytest

from uncork_workers.ray import cluster
from uncork_workers.ray.driver import Driver
from uncork_workers.ray.messages import Code


class Reference:
    """Keeps an object in Ray's store while it exists."""


def test_the_code_before_a_reload_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take 100 MB of the memory of Ray's nodes. What stays the same is stored once."""
    stored: list[weakref.ref[Reference]] = []

    def put(content: bytes) -> Reference:
        made = Reference()
        stored.append(weakref.ref(made))
        return made

    monkeypatch.setattr(cluster, "put", put)
    driver = Driver("gateway", io.BytesIO())
    for digest in ("old", "old", "new", "new"):
        (tmp_path / digest).touch()
        driver._code(Code(digest, str(tmp_path / digest)))

    assert [one() is not None for one in stored] == [False, True]


def test_a_stop_waits_until_ray_has_killed_the_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ray.kill`` returns before the cluster knows of it, and an exit would drop it."""
    on_their_way: list[str] = []

    def find_actor(name: str) -> str | None:
        """The cluster hears of one kill each time that it is asked."""
        if on_their_way:
            on_their_way.pop(0)
        return name if name in on_their_way else None

    monkeypatch.setattr(cluster, "kill", on_their_way.append)
    monkeypatch.setattr(cluster, "find_actor", find_actor)
    driver = Driver("gateway", io.BytesIO())
    driver._actors = {launch: f"uncork-gateway-{launch}" for launch in (1, 2, 3)}
    driver.kill_all()

    assert not on_their_way
