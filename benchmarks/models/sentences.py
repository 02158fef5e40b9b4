"""Measure the gain of batching for sentence embeddings: texts of different lengths, cork against none.

Runs in the environment for examples/sentences that scripts/bench sentences makes. Prints
docs/results/sentences.md. Exits with 1 if a request fails or its embedding differs in a batch.

    python -m benchmarks.models.sentences --rounds 5 --seconds 20
"""

from random import Random
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from benchmarks.harness.cli import exit_with, reporting_failures
from benchmarks.harness.paths import EXAMPLES
from benchmarks.harness.report import ResultPage, policies_sheet
from benchmarks.harness.rounds import Tell
from benchmarks.models.agreement import Agreement, check_agreement
from uncork_loadtests.compare import Comparison, Contest, compare
from uncork_loadtests.targets import our_service
from uncork_loadtests.traffic.plan import Payload, Plan

_SERVICE = f"{EXAMPLES / 'sentences' / 'service.py'}:Sentences"
_PATH = "/embed"
# Above any queueing delay, so that the policy without batches sheds nothing.
_OPTIONS = ("--mb-max-latency", "600000")
_TEXTS = 200
_WORDS = (3, 100)
_VOCABULARY = """
the a of in and with under over morning harbour bottle cork ship sailor engineer measures answers quickly
slowly requests together alone waiting river mountain winter yellow heavy light music letter station train
window garden question number market bread water neighbour history language science machine learns writes
"""
PAGE = ResultPage(
    title="Sentence embeddings",
    introduction="""
        The gain of batching for an embedding model on the CPU with texts of different lengths. For
        conclusions, see [benchmarks](../explanation/benchmarks.md#against-no-batching).
    """,
    script="scripts/bench sentences",
    packages=["sentence-transformers", "torch"],
)


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each policy.")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of each, after a warm-up of 2.")] = 20.0,
    clients: Annotated[int, typer.Option(min=2, help="Closed-loop clients.")] = 32,
) -> None:
    """Compare cork with none on examples/sentences, and print docs/results/sentences.md."""
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
    with reporting_failures("sentences", progress=progress), progress.status("sentences") as status:
        agreement, comparison = _measure(contest, tell=status.update)
    typer.echo(_text(agreement, comparison), nl=False)
    exit_with(comparison.faults, progress=progress)


def texts(count: int) -> list[str]:
    """Return texts of 3 to 100 words, always the same: as many of 3 to 10 as of 10 to 30."""
    random_ = Random(1)
    fewest, most = _WORDS
    lengths = [round(fewest * (most / fewest) ** random_.random()) for _ in range(count)]
    words = _VOCABULARY.split()
    return [" ".join(random_.choices(words, k=length)) for length in lengths]


def _measure(contest: Contest, *, tell: Tell) -> tuple[Agreement, Comparison]:
    with our_service(contest.target, options=contest.options) as server:
        tell("requesting every embedding alone, then all at once")
        agreement = check_agreement(server, path=_PATH, bodies=contest.plan.payload.bodies)
    return agreement, compare(contest, tell=tell)


def _text(agreement: Agreement, comparison: Comparison) -> str:
    plan = comparison.plan
    lengths = [len(body) for body in plan.payload.bodies]
    paragraph = f"""
        [`examples/sentences`](../../examples/sentences/README.md): all-MiniLM-L6-v2 behind one worker, which
        shares all cores with gateway and generator. {plan.clients} clients in a closed loop send
        {len(lengths)} different texts of {_WORDS[0]} to {_WORDS[1]} words ({min(lengths)} to {max(lengths)}
        bytes), one per request; `cost` is `"bytes"`. {agreement} Medians over rounds of
        {plan.seconds:g} s; cpu in processor seconds per 1000 requests.
    """
    sheet = policies_sheet(comparison, title=f"1 worker, {plan.clients} clients")
    return PAGE.text(paragraphs=[paragraph], sheets=[sheet])


if __name__ == "__main__":
    typer.run(main)
