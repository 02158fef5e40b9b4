"""The calls of Ray that Uncork uses. Nothing else imports ray; the gateway does not import this."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from uncork_workers.extras import install_command
from uncork_workers.ray.messages import RayUnusable

_CONNECT_S = 5.0
_LONGEST_LINE = 200
_CLIENT = "ray://"
_NAMESPACE = "uncork"
AUTO = "auto"
"""The address of the Ray node on this machine."""


def connect(address: str) -> tuple[str, list[str]]:
    """Connect this process to a cluster.

    Returns this machine's address in the cluster's network, and the addresses of nodes on other machines.

    Raises:
        RayUnusable: if there is no such cluster, or it cannot be used from here.
    """
    # Otherwise, calls after the loss of the cluster start another one, on this machine.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    try:
        import ray
    except ImportError as error:
        raise RayUnusable(f"Ray cannot be imported ({error}); run {install_command('ray')}") from None
    if address != AUTO:
        _require_reachable(address)
    try:
        try:
            ray.init(address, namespace=_NAMESPACE, logging_level="error", log_to_driver=False)
        except ConnectionError:
            if not address.startswith(_CLIENT):
                raise
            # A busy head may take longer than Ray Client waits to start a process for the first connection.
            ray.init(address, namespace=_NAMESPACE, logging_level="error", log_to_driver=False)
        nodes = [str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]]
    except Exception as error:
        raise RayUnusable(why_refused(address, error)) from None
    if address.startswith(_CLIENT):
        here = _address_towards(*_split(address))
    else:
        here = str(ray.util.get_node_ip_address())
    own = {one.address for addresses in psutil.net_if_addrs().values() for one in addresses}
    return here, sorted(set(nodes) - own)


def is_connected() -> bool:
    """Return False if Ray Client has lost the cluster; its errors then do not tell."""
    import ray

    return bool(ray.is_initialized())


def start_actor(host: type, name: str, needs: Mapping[str, float], arguments: Sequence[Any]) -> Any:
    """Start a detached actor that Ray never restarts, on a node with few of them; return its handle."""
    import ray

    options = ray.remote(host).options(
        name=name,
        namespace=_NAMESPACE,
        lifetime="detached",
        num_cpus=needs.get("CPU", 0),
        num_gpus=needs.get("GPU", 0),
        scheduling_strategy="SPREAD",
        max_restarts=0,
        max_task_retries=0,
    )
    return options.remote(*arguments)


def node_id() -> str:
    """Return the id of the node on which this actor runs."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def find_actor(name: str) -> Any | None:
    """Return the handle of a detached actor; None if there is none of that name."""
    import ray

    try:
        return ray.get_actor(name, namespace=_NAMESPACE)
    except ValueError:
        return None


def kill(actor: Any) -> None:
    """Kill an actor, whether it waits, runs or has ended."""
    import ray

    with contextlib.suppress(Exception):  # it has ended, or the cluster has
        ray.kill(actor, no_restart=True)


def put(content: bytes) -> Any:
    """Return a reference to an object that all nodes can read."""
    import ray

    return ray.put(content)


async def result(reference: Any) -> Any:
    return await asyncio.wrap_future(reference.future())


def why_waiting(needs: Mapping[str, float]) -> str:
    """Return what an actor that has not started needs, and what the cluster has."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    free = ray.available_resources()
    return describe_shortage(needs, nodes, free)


def describe_shortage(
    needs: Mapping[str, float], nodes: Sequence[Mapping[str, float]], free: Mapping[str, float]
) -> str:
    """Return what one worker needs, and what the nodes of a cluster have, for messages."""
    wanted = {name: amount for name, amount in needs.items() if amount}
    total = {name: sum(node.get(name, 0) for node in nodes) for name in wanted}
    needed = " and ".join(f"{amount:g} {name}" for name, amount in wanted.items())
    has = " and ".join(f"{free.get(name, 0):g} of {total[name]:g} {name}" for name in wanted)
    text = f"each needs {needed or 'a node'}, the Ray cluster has {has or len(nodes)} free"
    if not any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
        return f"{text}, and no single node is large enough"
    return text


def one_line(error: BaseException) -> str:
    """Return the essence of an error of Ray, which may contain several tracebacks."""
    if type(error).__name__ == "ActorUnavailableError":
        return "Ray cannot reach its node"
    if "node has died" in str(error) or "node was terminated" in str(error):
        return "its node has died"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)]
    line = (causes or lines or [type(error).__name__])[-1 if causes else 0]
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …"


def why_refused(address: str, error: Exception) -> str:
    """Return why ``ray.init`` failed, and what to do, in one line."""
    text = " ".join(str(error).split())
    if address == AUTO and isinstance(error, ConnectionError):
        return (
            "no Ray node runs on this machine; start one with `ray start --address HEAD:6379 --num-cpus 0`, "
            "or use --on ray://HEAD:10001"
        )
    if type(error).__name__ == "AuthenticationError":
        found = "there is none" if "found" in text or "find" in text else "the cluster refuses it"
        return (
            f"Ray needs a token (RAY_AUTH_MODE=token), but {found}; set RAY_AUTH_TOKEN to the token of the "
            "cluster, or RAY_AUTH_TOKEN_PATH to a file that contains it"
        )
    if "version" in text.lower():
        return f"Ray and Python must have the same versions here and in the cluster: {text}"
    if isinstance(error, ConnectionError):
        return (
            f"{address} does not accept the connection ({text}); if the cluster requires a token, set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to that token"
        )
    return f"cannot connect to Ray at {address}: {text}"


def _require_reachable(address: str) -> None:
    """Check that something listens: where nothing does, Ray waits for long or ends the process."""
    host, port = _split(address)
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError as error:
        raise RayUnusable(f"the Ray head at {host}:{port} cannot be reached: {error}") from None


def _address_towards(host: str, port: int) -> str:
    """Return the address of this machine from which it reaches another."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # sends nothing
        return str(probe.getsockname()[0])


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix(_CLIENT).partition("/")[0].rpartition(":")
    return host.strip("[]"), int(port)
