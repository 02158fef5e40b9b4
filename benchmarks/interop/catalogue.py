"""The servers to measure: their packages, commands and models."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness.commands import environment as variables_prefix
from benchmarks.harness.environments import Environment
from benchmarks.interop.dialects import V1, V2, V2_GRPC, Dialect
from benchmarks.peers.catalogue import PEERS, ModelPoint, Peer
from benchmarks.peers.entrants import SERVERS, Entrant, Work, digits_work, sleep_work
from uncork_loadtests.servers import HOST

POINT = ModelPoint(intercept_ms=5, slope_ms=0.1)
_ID = "1"
READY_PATH = "/v2/models/peer/ready"


@dataclass(frozen=True, kw_only=True)
class Service:
    """One server with one setting, one model and one protocol."""

    name: str
    project: str
    """Also the folder of its environment."""
    dialect: Dialect
    model: str = "sleep"
    """sleep or digits."""
    arguments: Sequence[str] = ()

    @property
    def over(self) -> str:
        return "grpc" if self.dialect.is_grpc else "http"

    def command(self, *, work: Work, environment: Environment, folder: Path) -> list[str]:
        """Return the command without the port; `folder` is for its temporary files."""
        command = variables_prefix({**work.variables, "TMPDIR": folder})
        command += [str(environment.python), str(SERVERS / f"{self.project}_server.py"), "--in-process"]
        return [*command, "--model", self.model, *self.arguments]

    def work(self, *, clients: int) -> Work:
        """Return the model and its requests: a row for each client, or the images of the digits example.

        Raises:
            BenchError: if the forest of the digits example is missing.
        """
        if self.model == "digits":
            return digits_work()
        rows = [[float(n), 0.5, n / 4, -1.25] for n in range(clients)]
        return replace(sleep_work(POINT), rows=rows, answers=[sum(row) for row in rows])

    def entrant(self, name: str, *, command: Sequence[str], ready_path: str) -> Entrant:
        """Return the server or the proxy as an entrant; both take the same requests."""
        peer = Peer(
            name=name,
            requirements=(),
            ready_path=ready_path,
            path=self.dialect.path,
            write=lambda row: self.dialect.write([row], _ID),
            read=self._read_one,
        )
        return Entrant(name=name, command=command, peer=peer)

    def _read_one(self, answer: bytes) -> object:
        (value,) = self.dialect.read(answer, _ID)
        return value


REQUIREMENTS: Mapping[str, Sequence[str]] = {
    "mlserver": (*PEERS["mlserver"].requirements, "mlserver-sklearn==1.7.1"),
    "kserve": ("kserve==0.21.0",),
}
"""For pip, by project; the server itself comes first."""
SERVICES = (
    Service(name="mlserver", project="mlserver", dialect=V2),
    Service(name="mlserver, own batching", project="mlserver", dialect=V2, arguments=("--wait-ms", "10")),
    Service(name="mlserver, scikit-learn", project="mlserver", dialect=V2, model="digits"),
    Service(name="kserve, V1", project="kserve", dialect=V1),
    Service(name="kserve, V2", project="kserve", dialect=V2),
    Service(name="mlserver, gRPC", project="mlserver", dialect=V2_GRPC),
    Service(name="kserve, gRPC", project="kserve", dialect=V2_GRPC),
)


def proxy_command(url: str) -> list[str]:
    """Return the command of the batching proxy in front of a server, without its ports."""
    return [sys.executable, "-m", "uncork", "proxy", url, "--host", HOST]
