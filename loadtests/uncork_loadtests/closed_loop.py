"""A closed-loop HTTP/1.1 load generator: each connection asks again as soon as it is answered.

Made to cost little: request bytes are built once, replies are read by the small parser of
`http_reply`, and nothing else happens between an answer and the next request. A closed loop
measures throughput; it hides queueing delay, because a slow server is asked less often.

    python -m uncork_loadtests.closed_loop http://127.0.0.1:3000/predict --body-file row.json
"""

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import uvloop

from uncork_loadtests.connections import Run
from uncork_loadtests.http_reply import ReplyError
from uncork_loadtests.load import Load, Result, batch_sizes, percentiles


async def drive(load: Load) -> Result:
    """Put `load` on a server from the running event loop and say what came back.

    Raises ConnectionError when the server cannot be reached, or no longer, and ReplyError when
    it answers with something other than HTTP/1.1.
    """
    run = Run(load)
    try:
        await run.connect()
        run.start()
        if load.warmup:
            await run.wait(load.warmup)
        measured, cpu, started = run.new_tally(), time.process_time(), time.perf_counter()
        await run.wait(load.seconds)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        run.new_tally()
        unanswered = await run.drain()
    finally:
        await run.close()
    by_answer, by_batch = batch_sizes(measured.batch_sizes)
    return Result(
        requests_per_second=measured.statuses.get(200, 0) / seconds,
        seconds=seconds,
        statuses=dict(measured.statuses),
        latency=percentiles(measured.latencies),
        batch_size_by_answer=by_answer,
        batch_size_by_batch=by_batch,
        cpu_seconds=cpu,
        answers_in_all=run.answers,
        errors=run.errors,
        mismatches=run.mismatches,
        first_mismatch=run.first_mismatch,
        unanswered=unanswered,
    )


def run_load(load: Load) -> Result:
    """Do what `drive` does on an event loop of its own (uvloop)."""
    return uvloop.run(drive(load))


def main(
    url: Annotated[str, typer.Argument(help="Where to post, http://host:port/path.")],
    body_file: Annotated[Path, typer.Option(help="File with the body to send.")],
    expected_file: Annotated[
        Path | None, typer.Option(help="File with the right answer, compared byte by byte.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line of the files is a body (an answer).")
    ] = False,
    connections: Annotated[int, typer.Option(help="Connections kept open.")] = 256,
    seconds: Annotated[float, typer.Option(help="Measured time, in seconds.")] = 5.0,
    warmup: Annotated[float, typer.Option(help="Discarded time before, in seconds.")] = 1.0,
    think: Annotated[float, typer.Option(help="Pause after each answer, in seconds.")] = 0.0,
    content_type: Annotated[str, typer.Option(help="Content-Type sent.")] = "application/json",
) -> None:
    """Load a server from keep-alive connections and print what came back as JSON."""
    try:
        load = Load(
            url=url,
            bodies=_read(body_file, lines=lines),
            expected=_read(expected_file, lines=lines) if expected_file else None,
            connections=connections,
            seconds=seconds,
            warmup=warmup,
            think=think,
            content_type=content_type,
        )
    except (OSError, ValueError) as error:
        typer.echo(f"closed_loop: {error}", err=True)
        raise typer.Exit(2) from error
    try:
        result = run_load(load)
    except (OSError, ReplyError) as error:
        typer.echo(f"closed_loop: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(msgspec.json.encode(result))


def _read(path: Path, *, lines: bool) -> list[bytes]:
    content = path.read_bytes()
    # Not splitlines(): it would also cut at characters that may stand inside a body.
    return content.removesuffix(b"\n").split(b"\n") if lines else [content]


if __name__ == "__main__":
    typer.run(main)
