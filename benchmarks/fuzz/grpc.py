"""Send mutated frames to gRPC connections: none may raise, keep memory, or leave a call unfinished.

Seed and number determine a stream of frames, so that a failed one can be sent again:

    python -m benchmarks.fuzz.grpc --seed 7 --first 4711 --streams 1
"""

from typing import Annotated

import typer
from rich.console import Console

from benchmarks.harness.cli import exit_with
from benchmarks.harness.sheets import Sheet, output, show
from tests.dispatcher.virtual_loop import VirtualLoop
from tests.gateway.grpc.http2.mutations import outcomes
from tests.loops import run


def main(
    streams: Annotated[int, typer.Option(min=1, help="Mutated streams of frames.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Seed of the mutations.")] = 1,
    first: Annotated[int, typer.Option(min=0, help="Number of the first stream.")] = 0,
) -> None:
    """Send mutated frames; exit with 1 if a connection fails."""
    progress = Console(stderr=True)
    try:
        found = run(outcomes(range(first, first + streams), seed=seed), loop_factory=VirtualLoop)
    except Exception as error:
        progress.print_exception()
        exit_with([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])], progress=progress)
    rows = [[end, f"{count:,}"] for end, count in found.most_common()]
    show(Sheet(title=f"gRPC, seed {seed}", columns=["end", "streams"], rows=rows), console=output())


if __name__ == "__main__":
    typer.run(main)
