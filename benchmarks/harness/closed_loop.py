"""A closed-loop HTTP/1.1 load generator in one process: each connection asks again when it is answered.

For measurements of throughput side by side, where starting and ending should cost little; `uncork
loadtest` has more to offer. A closed loop hides queueing delay, because a slow server is asked less often.

    python -m benchmarks.harness.closed_loop http://127.0.0.1:3000/predict --body-file row.json
"""

import time
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer
import uvloop
from numpy.typing import NDArray

from benchmarks.harness.load import Latency, Result
from uncork_loadtests.generator.http_reply import ReplyError
from uncork_loadtests.generator.samples import LOST, UNANSWERED, Samples, batch_rows, latencies_s
from uncork_loadtests.generator.share import Part, Share
from uncork_loadtests.traffic.payloads import read_bodies
from uncork_loadtests.traffic.plan import Payload, Plan


async def drive(plan: Plan) -> Result:
    """Run a plan from the running event loop and say what came back.

    Raises ConnectionError when the server cannot be reached, or no longer, and ReplyError when
    it answers with something other than HTTP/1.1.
    """
    share = Share(plan)
    try:
        await share.connect()
        part, samples = await share.run(time.monotonic() + plan.warmup_s)
    finally:
        await share.close()
    return _result(part, samples)


def _result(part: Part, samples: Samples) -> Result:
    done = samples["done_s"]
    within = samples[(done >= 0) & (done <= part.measured_s)]
    good = within[within["status"] == 200]
    statuses, counts = np.unique(within["status"], return_counts=True)
    by_answer, by_batch = batch_rows(good["batch_rows"])
    return Result(
        requests_per_second=len(good) / part.measured_s if part.measured_s else 0.0,
        seconds=part.measured_s,
        statuses={int(status): int(count) for status, count in zip(statuses, counts, strict=True)},
        latency=_latency(latencies_s(good)),
        batch_size_by_answer=by_answer,
        batch_size_by_batch=by_batch,
        cpu_seconds=part.cpu_s,
        answers_in_all=int((samples["status"] > 0).sum()),
        errors=int((samples["status"] == LOST).sum()),
        mismatches=int(samples["wrong"].sum()),
        first_mismatch=part.first_wrong,
        unanswered=int((samples["status"] == UNANSWERED).sum()),
    )


def _latency(seconds: NDArray[np.float64]) -> Latency | None:
    if not len(seconds):
        return None
    p50, p90, p99 = np.quantile(seconds, [0.5, 0.9, 0.99], method="inverted_cdf").tolist()
    return Latency(p50=p50, p90=p90, p99=p99, max=float(seconds.max()))


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
    header: Annotated[
        list[str] | None, typer.Option(help="Header field of every request, NAME:VALUE; repeat for more.")
    ] = None,
) -> None:
    """Load a server from keep-alive connections and print what came back as JSON."""
    fields = [one.partition(":") for one in header or []]
    try:
        plan = Plan(
            url=url,
            payload=Payload(
                bodies=read_bodies(body_file, lines=lines),
                expected=read_bodies(expected_file, lines=lines) if expected_file else None,
            ),
            clients=connections,
            seconds=seconds,
            warmup_s=warmup,
            think_s=think,
            content_type=content_type,
            headers=tuple((name, value.strip()) for name, _, value in fields),
        )
    except (OSError, ValueError) as error:
        typer.echo(f"closed_loop: {error}", err=True)
        raise typer.Exit(2) from error
    try:
        result = uvloop.run(drive(plan))
    except (OSError, ReplyError) as error:
        typer.echo(f"closed_loop: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(msgspec.json.encode(result))


if __name__ == "__main__":
    typer.run(main)
