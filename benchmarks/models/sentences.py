"""Measure what batching gains for sentence embeddings: texts of unequal length, cork by none, in one run.

Runs in an environment that has what examples/sentences asks for: scripts/bench-sentences makes it. Prints a
section of docs/benchmarks.md. A report, never a test; but embeddings that change in a batch are a failure.

    python -m benchmarks.models.sentences --rounds 5 --seconds 20
"""

from collections.abc import Callable
from random import Random
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from benchmarks.harness.paths import EXAMPLES
from benchmarks.harness.section import policies_sheet, section
from benchmarks.models.agreement import Agreement, check_agreement
from uncork_loadtests.compare import Comparison, Contest, compare
from uncork_loadtests.endings import exit_with, telling_failures
from uncork_loadtests.generator.fleet import LoadTestError
from uncork_loadtests.servers import BenchError
from uncork_loadtests.targets import our_service
from uncork_loadtests.traffic.plan import Payload, Plan

_SERVICE = f"{EXAMPLES / 'sentences' / 'service.py'}:Sentences"
_PATH = "/embed"
# Well above any queueing delay, so that the policy without batches sheds nobody.
_OPTIONS = ("--mb-max-latency", "600000")
_TEXTS = 200
_WORDS = (3, 100)
_VOCABULARY = """
the a of in and with under over morning harbour bottle cork ship sailor engineer measures answers quickly
slowly requests together alone waiting river mountain winter yellow heavy light music letter station train
window garden question number market bread water neighbour history language science machine learns writes
"""


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each policy.")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each, after a warm-up of 2.")] = 20.0,
    clients: Annotated[int, typer.Option(min=2, help="Clients that each wait for their answer.")] = 32,
) -> None:
    """Compare cork with none on examples/sentences, print a section of docs/benchmarks.md."""
    progress = Console(stderr=True)
    bodies = tuple(msgspec.json.encode(one) for one in texts(_TEXTS))
    plan = Plan(
        url="http://service/", payload=Payload(bodies=bodies), clients=clients, seconds=seconds, warmup_s=2.0
    )
    contest = Contest(
        target=_SERVICE,
        policies=("none", "cork"),
        plan=plan,
        rounds=rounds,
        path=_PATH,
        options=_OPTIONS,
    )
    with telling_failures("sentences", progress=progress), progress.status("sentences") as status:
        agreement, comparison = _measure(contest, tell=status.update)
    typer.echo(_text(agreement, comparison), nl=False)
    exit_with(comparison.faults, progress=progress)


def texts(count: int) -> list[str]:
    """Always the same texts, of 3 to 100 words: as many of 3 to 10 as of 10 to 30."""
    random_ = Random(1)
    fewest, most = _WORDS
    lengths = [round(fewest * (most / fewest) ** random_.random()) for _ in range(count)]
    words = _VOCABULARY.split()
    return [" ".join(random_.choices(words, k=length)) for length in lengths]


def _measure(contest: Contest, *, tell: Callable[[str], None]) -> tuple[Agreement, Comparison]:
    try:
        with our_service(contest.target, options=contest.options) as server:
            tell("asking for every embedding alone, and for all at once")
            bodies = contest.plan.payload.bodies
            agreement = check_agreement(server, path=_PATH, bodies=bodies)
        return agreement, compare(contest, tell=tell)
    except LoadTestError as error:
        raise BenchError(str(error)) from error


def _text(agreement: Agreement, comparison: Comparison) -> str:
    plan = comparison.plan
    lengths = [len(body) for body in plan.payload.bodies]
    paragraphs = [
        f"""
        `examples/sentences`: all-MiniLM-L6-v2 behind one worker, which shares all cores with gateway and
        generator. {plan.clients} clients in a closed loop send {len(lengths)}
        different texts of {_WORDS[0]} to {_WORDS[1]} words, {min(lengths)} to {max(lengths)} bytes, one a
        request; `cost` is their length. {agreement} Medians over rounds of {plan.seconds:g} s; cpu in
        processor seconds for 1000 requests.
        """
    ]
    return section(
        "Sentence embeddings",
        script="scripts/bench-sentences",
        paragraphs=paragraphs,
        sheets=[policies_sheet(comparison, title=f"1 worker, {plan.clients} clients")],
        packages=["sentence-transformers", "torch"],
    )


if __name__ == "__main__":
    typer.run(main)
