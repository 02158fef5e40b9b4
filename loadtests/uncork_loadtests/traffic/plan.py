"""The plan of a load test: with its TLS, plain frozen data that every generator process receives."""

import math
import ssl
import urllib.parse
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from uncork_dispatcher.simulator import SettingError
from uncork_dispatcher.simulator.traffic import open_loop_for, recorded_rate, recorded_times
from uncork_dispatcher.wording import plural
from uncork_loadtests.traffic.random_rows import RandomRows

REPLAY = "replay:"
"""Prefix of recorded arrivals."""


def per_second(rate: float) -> str:
    """Format a rate with four digits, without an exponent."""
    return f"{float(f'{rate:.4g}'):.10g}/s"


def recorded(arrivals: str) -> list[float]:
    """Return the recorded times; none if the arrivals are of another kind."""
    return recorded_times(Path(arrivals.removeprefix(REPLAY))) if arrivals.startswith(REPLAY) else []


@dataclass(frozen=True, kw_only=True)
class Payload:
    """The bodies of requests: sent in turn, made of random rows, or made by a function.

    Raises:
        ValueError: unless it is exactly one of these, or if the responses do not match the bodies.
    """

    bodies: tuple[bytes, ...] = ()
    expected: tuple[bytes, ...] | None = None
    """The right answer to each body; None: do not compare answers."""
    random: RandomRows | None = None
    """Random rows to make bodies of; the service's schema may decide their numbers."""
    function: str | None = None
    """MODULE:FUNCTION or FILE.py:FUNCTION; maps a request's number to a body, or a body and its answer."""

    def __post_init__(self) -> None:
        if bool(self.bodies or self.random) == (self.function is not None):
            raise ValueError("a payload must have either bodies, random rows or a function")
        if self.expected is not None and len(self.expected) != len(self.bodies):
            raise ValueError(
                f"{plural(len(self.bodies), 'body', 'bodies')} but "
                f"{plural(len(self.expected), 'expected response')}; give one for each body"
            )

    def shuffled(self, seed: str) -> "Payload":
        """Return the bodies and their responses in random order, unless a function makes them."""
        order = list(range(len(self.bodies)))
        Random(seed).shuffle(order)
        return replace(
            self,
            bodies=tuple(self.bodies[place] for place in order),
            expected=None if self.expected is None else tuple(self.expected[place] for place in order),
        )


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Certificates to trust and to present. All files are PEM."""

    ca: str | None = None
    """Certificates to trust; None: the system's."""
    insecure: bool = False
    """Trust any certificate, for any host."""
    cert: str | None = None
    """The client's certificate chain; None: no client certificate."""
    key: str | None = None
    """The key of `cert`; None: in the same file."""

    def context(self) -> ssl.SSLContext:
        """Load the files; raise SettingError if a file cannot be used, or fields contradict each other."""
        if self.insecure and self.ca is not None:
            raise SettingError("ca", "insecure", says=" must not be combined; give one of them")
        if self.key is not None and self.cert is None:
            raise SettingError("cert", says=" is missing; give the certificate chain of the key")
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            says = f" must be a PEM file of certificates, got {self.ca!r}: {error}"
            raise SettingError("ca", says=says) from None
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert is not None:
            try:
                # Without a password argument, OpenSSL would prompt for the password of an encrypted key.
                context.load_cert_chain(self.cert, self.key, password="")
            except (OSError, ValueError) as error:
                says = (
                    " must be PEM files of a certificate chain and its key without a password, "
                    f"got {self.cert!r} and {self.key or self.cert!r}: {error}"
                )
                raise SettingError("cert", "key", says=says) from None
        return context


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run: an open loop at a rate, or a closed loop of clients.

    Raises:
        SettingError: if a value is out of range.
        ValueError: if the arrivals are unknown.
        OSError: if recorded arrivals cannot be read.
    """

    url: str
    """An http or https URL with the path of every request."""
    payload: Payload
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    """Additional header fields of every request."""
    tls: Tls = field(default_factory=Tls)
    arrivals: str = "poisson"
    """Open loop: one of uncork_dispatcher.simulator.ARRIVALS."""
    rate: float | None = None
    """Open loop: mean requests per second; None: as recorded."""
    clients: int | None = None
    """Closed loop: clients that wait for their answers; None: an open loop."""
    think_s: float = 0.0
    """Closed loop: pause of a client between an answer and its next request."""
    seconds: float = 10.0
    """Measured time."""
    warmup_s: float = 1.0
    """Discarded time before: the same clients, or Poisson arrivals at the mean rate."""
    seed: int = 1
    processes: int = 1
    max_connections: int = 1024
    """Open loop: most connections of all processes together."""
    limit: int | None = None
    """Most requests, warm-up included; None: only time ends the run."""
    goal_s: float | None = None

    def __post_init__(self) -> None:
        if not _is_http(self.url):
            says = (
                " must look like http://host:port/path or https://..., with a port from 1 to 65535, "
                f"not {self.url!r}"
            )
            raise SettingError("url", says=says)
        self._check_numbers()
        if self.clients is None:
            # Fails on unknown arrivals and unreadable recordings, before anything is started.
            open_loop_for(self.arrivals, rate=self.rate, seconds=0.0, random_=Random(0))

    def _check_numbers(self) -> None:
        for name in ("clients", "limit", "processes", "max_connections"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SettingError(name, says=f" must be at least 1, not {value}")
        for name, least in (("warmup_s", 0.0), ("think_s", 0.0)):
            if not least <= getattr(self, name) < math.inf:
                says = f" must be at least {least:g}, not {getattr(self, name):g}"
                raise SettingError(name, says=says)
        for name in ("seconds", "goal_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise SettingError(name, says=f" must be above 0, not {value:g}")
        name = "max_connections" if self.clients is None else "clients"
        connections = getattr(self, name)
        if connections < self.processes:
            says = f" must be at least {self.processes}, one for each process, not {connections}"
            raise SettingError(name, says=says)

    @property
    def address(self) -> tuple[str, int]:
        parts = urllib.parse.urlsplit(self.url)
        return parts.hostname or "", parts.port or (443 if self.is_https else 80)

    @property
    def is_https(self) -> bool:
        return urllib.parse.urlsplit(self.url).scheme == "https"

    @property
    def average_rate(self) -> float:
        """Open loop: mean requests per second; by default that of the recording."""
        return recorded_rate(Path(self.arrivals.removeprefix(REPLAY))) if self.rate is None else self.rate

    def schedule(self) -> list[float]:
        """Open loop: the due time of each request, in seconds since the start of the measured time.

        Warm-up times are negative. The schedule depends on the seed only.
        """
        measured = open_loop_for(
            self.arrivals, rate=self.rate, seconds=self.seconds, random_=Random(self.seed)
        )
        before = open_loop_for(
            "poisson",
            rate=self.average_rate,
            seconds=self.warmup_s,
            random_=Random(f"warm-up of {self.seed}"),
        )
        return [*(time - self.warmup_s for time in before), *measured][: self.limit]

    def head(self) -> bytes:
        """Return the head of a request up to the value of Content-Length."""
        parts = urllib.parse.urlsplit(self.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        fields = [("Host", parts.netloc), ("Content-Type", self.content_type), *self.headers]
        lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
        return ("\r\n".join(lines) + "\r\nContent-Length: ").encode()


def _is_http(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port, or a host in brackets
        return False
