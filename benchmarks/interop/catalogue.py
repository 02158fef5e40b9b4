"""The servers that are asked with the proxy and without: what to install, how to start them."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness.environments import Environment
from benchmarks.interop.dialects import V1, V2, Dialect
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.entrants import Entrant, Work, digits_work, sleep_work
from benchmarks.peers.model_point import ModelPoint
from uncork_loadtests.servers import HOST, Server

POINT = ModelPoint(intercept_ms=5, slope_ms=0.1)
_HERE = Path(__file__).parent
# Where the models are, and MLServer's class for them.
_MODELS = _HERE.parent / "peers" / "servers"
_ID = "1"


@dataclass(frozen=True, kw_only=True)
class Target:
    """One server with one setting, one model and one protocol."""

    name: str
    project: str
    """Whose server it is; also the folder of its environment."""
    dialect: Dialect
    model: str = "sleep"
    """Or digits."""
    arguments: Sequence[str] = ()

    def command(self, *, work: Work, environment: Environment, folder: Path) -> list[str]:
        """How it is started, but for the port; `folder` takes what it writes while it runs."""
        variables = {**work.variables, "PYTHONPATH": str(_MODELS), "TMPDIR": str(folder)}
        command = ["env", *(f"{name}={value}" for name, value in variables.items())]
        command += [str(environment.python), str(_HERE / f"serve_{self.project}.py")]
        return [*command, "--model", self.model, *self.arguments]

    def work(self, *, clients: int) -> Work:
        """What it serves, and what it is asked: a row for each client, or the images of the digits example.

        BenchError if the forest of the digits example is not there.
        """
        if self.model == "digits":
            return digits_work()
        rows = [[float(n), 0.5, n / 4, -1.25] for n in range(clients)]
        return replace(sleep_work(POINT), rows=rows, answers=[sum(row) for row in rows])

    def entrant(self, name: str, *, command: Sequence[str], ready_path: str) -> Entrant:
        """The server, or what stands before it: both are asked in the same way."""
        return Entrant(
            name=name,
            command=command,
            ready_path=ready_path,
            path=self.dialect.path,
            write=lambda row: self.dialect.write([row], _ID),
            read=self._read_one,
            front="",
        )

    def _read_one(self, answer: bytes) -> object:
        (value,) = self.dialect.read(answer, _ID)
        return value


READY_PATH = "/v2/models/peer/ready"
REQUIREMENTS: Mapping[str, Sequence[str]] = {
    "mlserver": (*PEERS["mlserver"].requirements, "mlserver-sklearn==1.7.1"),
    "kserve": ("kserve==0.21.0",),
}
"""For pip, by project; the first is the server itself."""
TARGETS = (
    Target(name="mlserver", project="mlserver", dialect=V2),
    Target(name="mlserver, own batching", project="mlserver", dialect=V2, arguments=("--wait-ms", "10")),
    Target(name="mlserver, scikit-learn", project="mlserver", dialect=V2, model="digits"),
    Target(name="kserve, V1", project="kserve", dialect=V1),
    Target(name="kserve, V2", project="kserve", dialect=V2),
)


def proxy_command(server: Server) -> list[str]:
    """The batching proxy with its defaults before a server, but for the port."""
    return [sys.executable, "-m", "uncork", "proxy", server.url(""), "--host", HOST]
