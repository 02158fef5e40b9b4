"""The messages between the gateway and its helper process, the Ray driver: one JSON object per line.

    gateway                              helper
            Connect ------------------->          first; the answer is Connected or Refused
            Launch, Attach, Kill ------>          then, at any time
            <--- Started, Ended, Waiting

When its input ends, the helper kills the actors of all launches that have not ended, and exits.
"""

import msgspec

LONGEST_LINE_BYTES = 16 * 2**20


class RayUnusable(Exception):
    """The cluster cannot be used; the message says why and what to do, in one line."""


class Code(msgspec.Struct, frozen=True):
    """The folder of a service, packed by :mod:`uncork_workers.ray.code_shipping`.

    Attributes:
        digest: identifies the content.
        archive: path of the archive on the gateway's machine.
    """

    digest: str
    archive: str


class Connect(msgspec.Struct, tag="connect", frozen=True):
    """Connect to a cluster.

    Attributes:
        address: as for ``ray.init``.
        gateway: unique name of the gateway; part of the names of its actors.
    """

    address: str
    gateway: str


class Launch(msgspec.Struct, tag="launch", frozen=True):
    """Start an actor with a worker process.

    Attributes:
        arguments: of ``python -m uncork_workers``, without those that only the node knows.
        environment: additional environment variables of the worker.
        needs: what Ray reserves for the actor, such as ``{"CPU": 1}``.
        code: the folder to run in; None for an installed module.
    """

    launch: int
    arguments: list[str]
    environment: dict[str, str]
    needs: dict[str, float]
    code: Code | None = None


class Attach(msgspec.Struct, tag="attach", frozen=True):
    """Watch the actor of a launch that an earlier helper may have started."""

    launch: int
    needs: dict[str, float]


class Kill(msgspec.Struct, tag="kill", frozen=True):
    """Kill the actor of a launch, and with it the worker; :class:`Ended` follows."""

    launch: int


class Connected(msgspec.Struct, tag="connected", frozen=True):
    """The helper is connected.

    Attributes:
        here: the address of this machine in the network of the cluster.
        other_machines: the addresses of the cluster's nodes on other machines.
    """

    here: str
    other_machines: list[str]


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """The helper cannot connect, or has lost the connection, and exits; ``message`` says why, for people."""

    message: str


class Started(msgspec.Struct, tag="started", frozen=True):
    """The worker process of a launch runs on a node."""

    launch: int
    node: str


class Ended(msgspec.Struct, tag="ended", frozen=True):
    """The worker process of a launch has ended, or will never start.

    Attributes:
        code: its exit code, negative for a signal; None if unknown.
        reason: why, for messages, if there is no exit code.
    """

    launch: int
    code: int | None = None
    reason: str = ""


class Waiting(msgspec.Struct, tag="waiting", frozen=True):
    """Launches for which Ray has had no room for some time; an empty list when none is left.

    ``reason`` says what each needs and what is free.
    """

    launches: list[int]
    reason: str = ""


Command = Connect | Launch | Attach | Kill
Event = Connected | Refused | Started | Ended | Waiting

_encoder = msgspec.json.Encoder()
_commands: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_events: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(message: Command | Event) -> bytes:
    return _encoder.encode(message) + b"\n"


def decode_command(line: bytes) -> Command:
    """Decode a line of the gateway; raise msgspec.MsgspecError if it is none."""
    return _commands.decode(line)


def decode_event(line: bytes) -> Event:
    """Decode a line of the helper; raise msgspec.MsgspecError if it is none."""
    return _events.decode(line)
