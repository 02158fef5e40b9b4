"""The options of ``uncork simulate``."""

from dataclasses import dataclass
from pathlib import Path

from uncork.cli.loadtest.measuring import require_page
from uncork.cli.loadtest.traffic import MOST_CLIENTS, json_option
from uncork.cli.simulate.scenarios import (
    FULL_ROWS,
    LOADS,
    closed_cells,
    full_batch,
    open_cells,
    policy_names,
    whole_traces,
)
from uncork.cli.usage import named, require_writable
from uncork.config.errors import WrongUsage
from uncork.config.option_fields import flags, option
from uncork_dispatcher.simulator import (
    ALL_POLICIES,
    ARRIVALS,
    LENGTHS,
    RELEASE_WHEN_FREE,
    Cell,
)
from uncork_loadtests.traffic.plan import REPLAY
from uncork_workers.cores import usable_cores

_OF_OPEN = flags("load", "arrivals")
_OF_CLOSED = flags("clients", "round_trip_ms", "think_ms", "request_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A simulation whose options have been checked."""

    cells: list[Cell]
    policies: list[str]
    seeds: range
    requests: int | None
    processes: int

    @property
    def base(self) -> str:
        """The policy to which the others are related."""
        return RELEASE_WHEN_FREE if RELEASE_WHEN_FREE in self.policies else self.policies[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The options of ``uncork simulate``; ``given`` names those that are on the command line."""

    intercept_ms: float = option(5.0, "Milliseconds that each batch takes, whatever its size.")
    slope_ms: float = option(0.1, "Milliseconds that each row adds; with --lengths, each unit of length.")
    prepare_ms: float = option(
        0.0,
        "Milliseconds that the stage prepare adds for each row. It overlaps with the batch before.",
    )
    lengths: str | None = option(
        None,
        f"Distribution of the rows' lengths, one of {', '.join(LENGTHS)}. A tenth of the rows of "
        "bimodal:16:512:0.1 is about 512 long, the others about 16. As for an API with a cost, "
        "--max-batch-size then counts length.",
        metavar="KIND",
        show_default="all rows cost the same",
    )
    padding: float = option(
        1.0,
        "With --lengths: share of the padding that takes time. 1: the model pads all rows to the longest. "
        "0: it does not pad.",
    )
    noise: float = option(0.1, "Coefficient of variation of batch times.")
    workers: int = option(1, "Number of workers.", min=1, max=10_000)
    transport_ms: float = option(
        0.0,
        "Milliseconds that a batch and its reply are on the way to the worker and back, as over a network.",
    )
    max_batch_size: int | None = option(
        None,
        "Maximum rows per batch; with --lengths, their maximum total length, padding included.",
        min=1,
        show_default=f"{FULL_ROWS}; with --lengths, {FULL_ROWS} times the mean",
    )
    goal_ms: float = option(1000.0, "Latency goal in milliseconds.")
    load: str | None = option(
        None,
        "Open loop: average rate as a share of the capacity in full batches; with --lengths, in batches of "
        "the best size whose rows are in order of arrival. Separate several by commas.",
        metavar="SHARES",
        show_default=f"{LOADS}, or the recorded rate with {REPLAY}FILE",
    )
    arrivals: str = option(
        "poisson",
        f"Open loop: arrival process, one of {', '.join(ARRIVALS)}. A recording has one time in seconds per "
        "line; --load scales it to that rate.",
        metavar="KIND",
    )
    clients: str | None = option(
        None,
        "Closed loop: number of clients, each of which sends its next request after the response to the "
        "last; separate several by commas.",
        metavar="NUMBERS",
        show_default="open loop",
    )
    bulk_clients: int = option(
        0,
        "Clients that send requests of a second class, without a goal, one after the other. The other "
        "options and numbers concern the first class. Needs policy cork.",
        min=0,
        max=MOST_CLIENTS,
    )
    bulk_rows: int = option(1, "With --bulk-clients: rows of each of their requests.", min=1)
    round_trip_ms: float = option(
        0.5, "Closed loop: milliseconds from a response to the client's next request."
    )
    think_ms: float = option(0.0, "Closed loop: milliseconds that a client pauses in addition.")
    request_ms: float = option(
        0.0,
        "Closed loop: milliseconds that gateway and clients work on each request. Responses leave at least "
        "this far apart.",
    )
    policy: list[str] | None = option(
        None,
        "Policies, as for `uncork serve`; separate several by commas, or repeat the option. Ratios are "
        f"relative to fixed:0, which releases when a worker is free. all: {', '.join(ALL_POLICIES)}.",
        metavar="NAMES",
        show_default="all",
    )
    seeds: int = option(
        3, "Runs of each cell with different seeds; intervals need at least 2.", min=1, max=1_000_000
    )
    first_seed: int = option(1, "Seed of the first run; each further run adds 1.", min=0)
    requests: int | None = option(
        None,
        "Requests measured in each run, after a warm-up.",
        min=2,
        show_default="about 300 batches per worker",
        max=100_000_000,
    )
    processes: int | None = option(
        None, "Processes that simulate in parallel.", min=1, show_default="one per core", max=1000
    )
    json: str | None = json_option()
    plot: Path | None = option(
        None,
        "Write a page that plots latency by load, or throughput by clients; the name must end in .html.",
        metavar="FILE",
    )
    given: frozenset[str] = frozenset()

    def job(self) -> Job:
        """Return the job; raise WrongUsage if options contradict each other or a value is wrong."""
        self._refuse_contradictions()
        cells = self._cells()
        job = Job(
            cells=cells,
            policies=policy_names(self._policies, limit_rows=cells[0].limit_rows),
            seeds=range(self.first_seed, self.first_seed + self.seeds),
            requests=self.requests if self.requests is not None else whole_traces(cells),
            processes=self.processes or usable_cores(),
        )
        require_page("--plot", self.plot)
        require_writable({"--plot": self.plot, "--json": self.json})
        return job

    @property
    def _policies(self) -> list[str]:
        return self.policy or ["cork" if self.bulk_clients else "all"]

    def _cells(self) -> list[Cell]:
        model = {
            "intercept_ms": self.intercept_ms,
            "slope_ms": self.slope_ms,
            "prepare_ms": self.prepare_ms,
            "noise_cv": self.noise,
            "workers": self.workers,
            "transport_ms": self.transport_ms,
            "limit_rows": self.max_batch_size or full_batch(self.lengths),
            "goal_ms": self.goal_ms,
            "lengths": self.lengths,
            "padding": self.padding,
            "bulk_clients": self.bulk_clients,
            "bulk_rows": float(self.bulk_rows),
        }
        if self.clients is None:
            return open_cells(model, self.load, self.arrivals)
        return closed_cells(
            model,
            self.clients,
            round_trip_ms=self.round_trip_ms,
            think_ms=self.think_ms,
            request_ms=self.request_ms,
        )

    def _refuse_contradictions(self) -> None:
        given = self.given
        if "padding" in given and "lengths" not in given:
            raise WrongUsage("to use --padding, set --lengths")
        if "bulk_rows" in given and not self.bulk_clients:
            raise WrongUsage("to use --bulk-rows, set --bulk-clients")
        if self.bulk_clients and (self._policies != ["cork"] or self.lengths is not None):
            raise WrongUsage("--bulk-clients requires policy cork, and rows without --lengths")
        if "clients" in given and (wrong := named(_OF_OPEN, given)):
            raise WrongUsage(f"--clients runs a closed loop and cannot be combined with {wrong}")
        if "clients" not in given and (wrong := named(_OF_CLOSED, given)):
            raise WrongUsage(f"to use {wrong}, set --clients (a closed loop)")
