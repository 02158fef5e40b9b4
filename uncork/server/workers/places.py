"""The values of ``--on`` and ``--worker-address``."""

import os
import re

_LOCAL = "local"
_RAY = "ray"
_HEAD = re.compile(r"(ray://)?([^\s/:]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,5})")
_ADDRESS = re.compile(r"(?P<host>[^\s/:\[\]]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?")


def read_place(text: str) -> str | None:
    """Return the address for ``ray.init`` of a value of ``--on``; None for this machine.

    Raises:
        ValueError: if it is not a place.
    """
    if text == _LOCAL:
        return None
    if text == _RAY:
        return os.environ.get("RAY_ADDRESS") or "auto"
    if _has_port(_HEAD.fullmatch(text)):
        return text
    raise ValueError(
        f"{text!r} is not a place for workers; give local, ray, HOST:PORT or ray://HOST:PORT, "
        "with a port from 1 to 65535"
    )


def read_worker_address(text: str) -> tuple[str, int | None]:
    """Return host and port of a value of ``--worker-address``; None for a port that is not given.

    Raises:
        ValueError: if it is not an address.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or not (found["port"] is None or _has_port(found)):
        raise ValueError(f"{text!r} is not an address; give HOST or HOST:PORT, with a port from 1 to 65535")
    return found["host"].strip("[]"), int(found["port"]) if found["port"] else None


def _has_port(found: re.Match[str] | None) -> bool:
    return found is not None and 1 <= int(found["port"]) <= 65535
