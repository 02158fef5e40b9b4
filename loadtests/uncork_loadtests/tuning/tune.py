"""Find and prove the settings of a service for a latency goal: measure, simulate, load.

Batch times of the real service give a line; the simulator finds the workers and batch sizes that keep the
goal; a load test of the real service checks the result.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from uncork_dispatcher.advice import Advice, advise
from uncork_dispatcher.simulator import SettingError
from uncork_dispatcher.wording import plural
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.measurement import Verdict, load, valid_if_possible, verdict
from uncork_loadtests.servers import BenchError, Cpu, words
from uncork_loadtests.targets import Api, aimed, aimed_at, api_at, apis, our_service
from uncork_loadtests.traffic.plan import Plan, per_second, recorded
from uncork_loadtests.tuning import batch_times
from uncork_loadtests.tuning.lengths import Lengths, Unmeasured, findings
from uncork_loadtests.tuning.lengths import measure as measure_lengths
from uncork_loadtests.tuning.search import (
    WANTED,
    Figures,
    Model,
    Proposal,
    capacity,
    caps,
    most,
    predict,
    smallest,
)

Tell = Callable[[str], None]

GATEWAY_BUSY = 0.7
"""Highest busy share of the gateway; above, requests queue in it."""
DISAGREE = 0.3
"""Tolerated relative difference between measured and predicted latencies."""

# Without a rate, the proposal is for this share of the highest one, to leave a margin.
_OF_HIGHEST = 0.9
_PROOF_S = (5.0, 60.0)
_PROOF_REQUESTS = 1000
_WARMUP_S = 1.0


@dataclass(frozen=True, kw_only=True)
class TuningRequest:
    """A service to tune and the goal; creation raises ValueError if a number is out of range."""

    target: str
    plan: Plan
    """Payload, arrivals, seed and processes. Its URL is replaced by that of the server."""
    goal_ms: float
    rate: float | None
    """Requests per second; None: as many as the workers can carry."""
    max_workers: int
    max_batch_size: int
    """Largest batch to measure and to advise."""
    cores: int
    """Cores that this process may use."""
    path: str | None = None
    seconds: float | None = None
    """Length of the proof; None: enough for a 99th percentile and a whole recording, within bounds."""

    def __post_init__(self) -> None:
        for name in ("goal_ms", "rate", "seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise SettingError(name, says=f" must be above 0, not {value:g}")
        for name in ("max_workers", "max_batch_size"):
            if getattr(self, name) < 1:
                raise SettingError(name, says=f" must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Proof(Verdict):
    """The load test at the advised settings."""

    workers: int
    rate: float
    seconds: float
    recorded_s: float = 0.0
    """Length of the recorded arrivals at this rate; 0 without."""
    predicted: Figures
    measured: Figures | None
    """None without a good answer."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    request: TuningRequest
    measured: batch_times.BatchTimes
    lengths: Lengths | None = None
    """The effect of the bodies' lengths; None if they are about equal, or it was not measured."""
    no_lengths: str = ""
    """Why the effect of different lengths was not measured, or ""."""
    model: Model
    gateway_rate: float
    """Requests per second at which the gateway reaches GATEWAY_BUSY; it is not simulated."""
    rates: Sequence[Proposal] = ()
    """Without a rate: the highest for each number of workers, ignoring the gateway's limit."""
    proposal: Proposal | None
    """None if no settings keep the goal."""
    proof: Proof | None = None
    """None without a proposal that keeps the goal."""

    @property
    def failures(self) -> list[Advice]:
        """Reasons why the goal is not met, or why that is unknown."""
        if self.proposal is None or not self.proposal.met:
            return [_cannot(self.model, self.request, self.proposal)]
        return faults(self.proof) if self.proof is not None else []

    @property
    def warnings(self) -> list[Advice]:
        """The failures, and reasons to doubt predicted figures."""
        found = self.failures
        if self.proposal is None or not self.proposal.met:
            return found
        if self.proof is not None:
            found += differences(self.proof)
        if self.proposal.rate > self.gateway_rate and (
            self.proof is None or self.proof.rate < self.proposal.rate
        ):
            found.append(advise("gateway-limit", rate=self.gateway_rate))
        return found


def tune(request: TuningRequest, *, tell: Tell) -> Tuned:
    """Measure, simulate, prove. `tell` is called with each step.

    Raises:
        BenchError: if the service does not become ready or does not answer, or if its API counts cost.
        NoSuchApi: if the service has no API that batches at the path.
    """
    api, measured, lengths, no_lengths = _measured(request, tell=tell)
    model = Model(
        line=batch_times.fit(measured.sizes),
        rows_per_request=measured.rows_per_request,
        overhead_ms=measured.overhead_ms,
        goal_ms=request.goal_ms,
        largest=measured.sizes[-1].rows,
        concurrency=api.workers,
        arrivals=request.plan.arrivals,
        seed=request.plan.seed,
    )
    gateway_us = measured.gateway_cpu_us
    gateway_rate = GATEWAY_BUSY * 1e6 / gateway_us if gateway_us else math.inf
    rates, proposal = _proposal(request, model, gateway_rate=gateway_rate, tell=tell)
    proof = None
    if proposal is not None and proposal.met:
        proof = _prove(request, model, proposal, tell=tell)
    return Tuned(
        request=request,
        measured=measured,
        lengths=lengths,
        no_lengths=no_lengths,
        model=model,
        gateway_rate=gateway_rate,
        rates=rates,
        proposal=proposal,
        proof=proof,
    )


def _measured(
    request: TuningRequest, *, tell: Tell
) -> tuple[Api, batch_times.BatchTimes, Lengths | None, str]:
    """Return the API with one worker, batch times by size, and the effect of lengths.

    If that is unknown, it is None, and the reason comes last.
    """
    tell(f"starting {request.target}")
    # Refuse no request and split no batch while batch times are measured.
    options = {
        "--workers": 1,
        "--policy": f"fixed:{batch_times.HOLD_MS:g}",
        "--mb-max-latency": 600_000,
        "--mb-max-batch-size": 1_000_000,
    }
    with our_service(request.target, options=words(options)) as server:
        api = api_at(request.path, of=apis(server), batches=True)
        plan = aimed_at(api, request.plan, server)
        lengths, no_lengths = None, ""
        try:
            lengths = measure_lengths(plan, largest=request.max_batch_size, tell=tell)
        except Unmeasured as error:
            no_lengths = str(error)
        if api.counts == "cost":
            raise BenchError(_counts_cost(lengths))
        measured = batch_times.measure(
            server, plan, largest=request.max_batch_size, goal_ms=request.goal_ms, tell=tell
        )
        return api, measured, lengths, no_lengths


def _counts_cost(lengths: Lengths | None) -> str:
    """Explain why an API with a cost gets no settings, and what its batch times depend on."""
    why = (
        "this API counts cost, so its batch times do not follow from rows; uncork tune finds settings only "
        "for APIs without cost; try settings with uncork loadtest and uncork compare"
    )
    found = [] if lengths is None else findings(lengths, has_cost=True)
    return "\n  ".join([why, *(one.clause for one in found)])


def _proposal(
    request: TuningRequest, model: Model, *, gateway_rate: float, tell: Tell
) -> tuple[list[Proposal], Proposal | None]:
    """Return the highest rate for each number of workers (if no rate is requested), and the proposal."""
    if request.rate is not None:
        return [], smallest(model, rate=request.rate, max_workers=request.max_workers, tell=tell)
    rates = []
    for workers in range(1, request.max_workers + 1):
        tell(f"simulating {plural(workers, 'worker')}")
        highest = most(model, workers=workers)
        if highest is not None:
            rates.append(highest)
    if not rates:
        return [], None
    enough = next((one for one in rates if one.rate >= gateway_rate), rates[-1])
    rate = _OF_HIGHEST * min(enough.rate, gateway_rate)
    return rates, predict(model, rate=rate, workers=enough.workers, cap=enough.mb_max_batch_size)


def _prove(request: TuningRequest, model: Model, proposal: Proposal, *, tell: Tell) -> Proof:
    """Load the service at the proposed settings; with too few cores, one worker and its share of the rate."""
    workers = proposal.workers if proposal.workers <= request.cores else 1
    rate = proposal.rate * workers / proposal.workers
    predicted = proposal.predicted
    if workers < proposal.workers:
        cap = proposal.mb_max_batch_size
        predicted = predict(model, rate=rate, workers=workers, cap=cap).predicted
    options = {
        "--workers": workers,
        "--policy": "cork",
        "--mb-max-latency": proposal.mb_max_latency,
        "--mb-max-batch-size": proposal.mb_max_batch_size,
    }
    plan = proof_plan(request, rate=rate)
    tell(f"starting {request.target} with the recommended settings")
    with our_service(request.target, options=words(options)) as server:
        plan = aimed(plan, server, path=request.path)

        def measure() -> Proof:
            tell(f"load-testing it at {per_second(rate)}")
            return _proof(*load(server, plan), workers=workers, predicted=predicted)

        return valid_if_possible(measure)


def proof_plan(request: TuningRequest, *, rate: float) -> Plan:
    """Return the load test at a rate; its URL is set when the server runs."""
    requests = max(_PROOF_REQUESTS, len(recorded(request.plan.arrivals)))
    return replace(
        request.plan,
        # A file may be sorted by length, and the test may end before its last line.
        payload=request.plan.payload.shuffled(f"{request.plan.seed} proof"),
        rate=rate,
        seconds=request.seconds or min(max(_PROOF_S[0], requests / rate), _PROOF_S[1]),
        warmup_s=_WARMUP_S,
        goal_s=request.goal_ms / 1000,
    )


def _proof(outcome: Outcome, cpu: Cpu | None, *, workers: int, predicted: Figures) -> Proof:
    summary = outcome.summary()
    measured = None
    if summary.latency is not None:
        measured = Figures(
            p50_ms=summary.latency.percentiles_ms["50"],
            p99_ms=summary.latency.percentiles_ms["99"],
            in_goal=summary.in_goal or 0.0,
            batch_rows=summary.batch_rows_by_batch,
        )
    return Proof(
        workers=workers,
        rate=outcome.plan.average_rate,
        seconds=outcome.measured_s,
        recorded_s=len(recorded(outcome.plan.arrivals)) / outcome.plan.average_rate,
        predicted=predicted,
        measured=measured,
        **verdict(outcome, summary, cpu),
    )


def _cannot(model: Model, request: TuningRequest, nearest: Proposal | None) -> Advice:
    """Explain why no settings keep the goal."""
    goal_s, possible = model.goal_ms / 1000, caps(model)
    rows = model.rows_per_request
    needed_s = (model.line.milliseconds(rows) + model.overhead_ms) / 1000
    if not possible:
        return advise(
            "goal_out_of_reach", rows=rows, unit="row", needed_s=needed_s, goal_s=goal_s, setting="--goal-ms"
        )
    if nearest is not None:
        share, workers = nearest.predicted.in_goal, nearest.workers
        return advise("goal-not-met", goal_s=goal_s, share=share, workers=workers, wanted=WANTED)
    if request.rate is None:
        return advise("goal-at-no-rate", goal_s=goal_s, wanted=WANTED, needed_s=needed_s)
    workers = request.max_workers
    carried = max(capacity(model, workers=workers, cap=cap) for cap in possible)
    return advise("rate-above-capacity", workers=workers, capacity=carried, rate=request.rate)


def faults(proof: Proof) -> list[Advice]:
    """Return why a load test does not prove that the goal is met."""
    if proof.void:
        return [advise("load-test-void", why=proof.void)]
    if proof.failure or proof.measured is None:
        return [advise("load-test-failed", why=proof.failure)]
    found = []
    if proof.wrong:
        found.append(advise("wrong-responses", wrong=proof.wrong, first=proof.first_wrong))
    # A single worker may be predicted to keep the goal less often than all of them.
    least = WANTED if proof.predicted.in_goal >= WANTED else proof.predicted.in_goal - (1 - WANTED)
    if proof.measured.in_goal < least:
        found.append(advise("goal-missed", share=proof.measured.in_goal, wanted=least))
    return found


def differences(proof: Proof) -> list[Advice]:
    """Return the latencies that a valid load test measured otherwise than predicted."""
    if proof.void or proof.failure or proof.measured is None:
        return []
    return [
        advise(
            "latency-differs",
            name=name,
            measured_s=measured / 1000,
            predicted_s=predicted / 1000,
            ratio=measured / predicted,
        )
        for name, predicted, measured in (
            ("p50", proof.predicted.p50_ms, proof.measured.p50_ms),
            ("p99", proof.predicted.p99_ms, proof.measured.p99_ms),
        )
        if predicted and measured and abs(measured / predicted - 1) > DISAGREE
    ]
