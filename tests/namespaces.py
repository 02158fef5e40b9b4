"""Machines on one: network namespaces that a switch connects, for tests of what crosses a network."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _enter(namespace: int) -> None:
    # os.setns() exists from Python 3.12 on.
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Network:
    """Namespaces with one address each, connected by a bridge in another one."""

    def __init__(self, names: Sequence[str]) -> None:
        self._prefix = f"uncork{os.getpid()}"
        self._names = names

    def create(self) -> None:
        switch = self._name("switch")
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for name in self._names:
            own = self._name(name)
            _ip("netns", "add", own)
            _ip("-n", switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", own)
            _ip("-n", switch, "link", "set", name, "master", "bridge", "up")
            _ip("-n", own, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            _ip("-n", own, "link", "set", "eth0", "up")
            _ip("-n", own, "link", "set", "lo", "up")

    def delete(self) -> None:
        """Delete the namespaces, also those of a network that was created in part."""
        for name in (*self._names, "switch"):
            subprocess.run(["ip", "netns", "delete", self._name(name)], check=False, capture_output=True)

    def address(self, name: str) -> str:
        return f"10.77.0.{self._names.index(name) + 1}"

    def inside(self, name: str) -> list[str]:
        """Return what runs a command in a namespace."""
        return ["ip", "netns", "exec", self._name(name)]

    def pids(self, name: str) -> list[int]:
        listed = subprocess.run(
            ["ip", "netns", "pids", self._name(name)], check=True, capture_output=True, text=True
        )
        return [int(pid) for pid in listed.stdout.split()]

    @contextmanager
    def entered(self, name: str) -> Iterator[None]:
        """Open sockets in a namespace, in this thread and those that it starts, until the block ends."""
        with (
            Path("/proc/thread-self/ns/net").open() as own,
            Path("/run/netns", self._name(name)).open() as other,
        ):
            _enter(other.fileno())
            try:
                yield
            finally:
                _enter(own.fileno())

    def part(self, name: str) -> None:
        """Cut a namespace off: packets vanish without an error."""
        _ip("-n", self._name("switch"), "link", "set", name, "nomaster")

    def heal(self, name: str) -> None:
        """Connect a namespace again."""
        _ip("-n", self._name("switch"), "link", "set", name, "master", "bridge")

    def _name(self, name: str) -> str:
        return f"{self._prefix}-{name}"


@contextmanager
def network(*names: str) -> Iterator[Network]:
    """Give a network until the block ends; skip the test where none can be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2")
    made = Network(names)
    try:
        try:
            made.create()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
        yield made
    finally:
        made.delete()
