"""The generators a bench runs, each in a process of its own, and one record for what they find."""

import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.harness.load import Result
from uncork_dispatcher.plural import plural
from uncork_loadtests.servers import BenchError, Server

WARMUP_SECONDS = 1.0
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What is sent to one server in one measurement."""

    path: str
    bodies: Sequence[bytes]
    expected: Sequence[bytes]
    """The answer each body must get; wrk does not look at answers."""
    connections: int
    seconds: float
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further header fields of every request."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a generator saw, whichever it was."""

    requests_per_second: float
    """Requests answered with 200."""
    p50: float | None
    """Median latency in seconds."""
    p99: float | None
    batch_size: float | None
    """Mean size of the batches."""
    batch_size_by_answer: float | None
    """Mean size of the batch a request found itself in."""
    refused: int
    """Answers with 503; with wrk, all that were neither 2xx nor 3xx."""
    fault: str
    """What went wrong beyond refusals; empty if nothing did."""
    answers: int
    """All answers, warm-up included."""
    generator_cpu: float
    """Processor seconds the generator used per 1000 answers."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One measurement of one server."""

    generator: str
    seen: Seen
    server_cpu: float | None
    """Processor seconds per 1000 requests, of the server process; None if not known."""
    workers_cpu: float | None
    """The same, of the processes below it together."""


def wrk_path() -> str | None:
    """Where the program wrk is, if it is there."""
    return shutil.which("wrk")


def measure(server: Server, *, traffic: Traffic, generator: str) -> Trial:
    """Put `traffic` on `server` with generator "python" or "wrk"; nothing else should run."""
    before = server.cpu()
    seen = (_wrk if generator == "wrk" else _closed_loop)(server.url(traffic.path), traffic=traffic)
    after = server.cpu()
    server_cpu = workers_cpu = None
    if before and after and seen.answers:
        server_cpu = (after.server - before.server) / seen.answers * 1000
        workers_cpu = (after.workers - before.workers) / seen.answers * 1000
    return Trial(generator=generator, seen=seen, server_cpu=server_cpu, workers_cpu=workers_cpu)


def _closed_loop(url: str, *, traffic: Traffic) -> Seen:
    with tempfile.TemporaryDirectory() as folder:
        bodies, expected = Path(folder, "bodies"), Path(folder, "expected")
        command = [sys.executable, "-m", "benchmarks.harness.closed_loop", url]
        command += [part for header in traffic.headers.items() for part in ("--header", ": ".join(header))]
        if len(traffic.bodies) > 1:
            command.append("--lines")
        bodies.write_bytes(_content(traffic.bodies))
        expected.write_bytes(_content(traffic.expected))
        command += ["--body-file", str(bodies), "--expected-file", str(expected)]
        command += ["--connections", str(traffic.connections)]
        command += ["--seconds", str(traffic.seconds), "--warmup", str(WARMUP_SECONDS)]
        result = msgspec.json.decode(_output(command, seconds=traffic.seconds), type=Result)
    return Seen(
        requests_per_second=result.requests_per_second,
        p50=result.latency.p50 if result.latency else None,
        p99=result.latency.p99 if result.latency else None,
        batch_size=result.batch_size_by_batch,
        batch_size_by_answer=result.batch_size_by_answer,
        refused=result.statuses.get(503, 0),
        fault=_fault(result),
        answers=result.answers_in_all,
        generator_cpu=result.cpu_seconds / max(1, sum(result.statuses.values())) * 1000,
    )


def _content(items: Sequence[bytes]) -> bytes:
    """A file with one item, or with a line for each."""
    if len(items) == 1:
        return items[0]
    if any(b"\n" in item for item in items):
        raise BenchError("a body or answer holds a line break, the generator reads lines")
    return b"\n".join(items) + b"\n"


def _fault(result: Result) -> str:
    others = {s: count for s, count in result.statuses.items() if s not in (200, 503)}
    found = []
    if result.mismatches:
        found.append(f"{plural(result.mismatches, 'wrong answer')}, the first: {result.first_mismatch}")
    if others:
        found.append("answers " + ", ".join(f"{count} x {s}" for s, count in others.items()))
    if result.errors:
        found.append(f"{plural(result.errors, 'connection')} lost")
    if result.unanswered:
        found.append(f"{plural(result.unanswered, 'request')} never answered")
    return "; ".join(found)


def _wrk(url: str, *, traffic: Traffic) -> Seen:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "post.lua")
        fields = {"Content-Type": "application/json", **traffic.headers}
        lines = "".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in fields.items())
        body = b"wrk.body = [==[" + traffic.bodies[0] + b"]==]\n"
        script.write_bytes(b'wrk.method = "POST"\n' + lines.encode() + body)
        command = ["wrk", "-t1", f"-c{traffic.connections}", "--latency", "-s", str(script)]
        # wrk has no warm-up of its own and takes whole seconds only.
        warmup = parse_wrk(_wrk_run(command, url=url, seconds=WARMUP_SECONDS), cpu=0.0)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        output = _wrk_run(command, url=url, seconds=traffic.seconds)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return parse_wrk(output, cpu=cpu, answers_before=warmup.answers)


def _wrk_run(command: Sequence[str], *, url: str, seconds: float) -> str:
    whole = [*command, f"-d{max(1, round(seconds))}s", url]
    return _output(whole, seconds=seconds).decode()


def parse_wrk(output: str, *, cpu: float, answers_before: int = 0) -> Seen:
    """Read what wrk prints with --latency; `cpu` is the processor time it used, in seconds."""
    total = re.search(r"(\d+) requests in ([\d.]+)(us|ms|s|m)\b", output)
    if total is None:
        raise BenchError(f"cannot read what wrk printed:\n{output}")
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    # Its fourth count, timeouts, is of answers slower than 2 s: slow is not wrong.
    lost = re.search(r"Socket errors: (connect \d+, read \d+, write \d+)", output)
    counts = re.findall(r"\d+", lost[1]) if lost else []
    answers, refused = int(total[1]), int(bad[1]) if bad else 0
    return Seen(
        requests_per_second=(answers - refused) / (float(total[2]) * _UNITS[total[3]]),
        p50=_wrk_percentile(output, percent=50),
        p99=_wrk_percentile(output, percent=99),
        batch_size=None,
        batch_size_by_answer=None,
        refused=refused,
        fault=f"socket errors: {lost[1]}" if lost and any(map(int, counts)) else "",
        answers=answers_before + answers,
        generator_cpu=cpu / max(1, answers) * 1000,
    )


def _wrk_percentile(output: str, *, percent: int) -> float | None:
    found = re.search(rf"^ *{percent}% +([\d.]+)(us|ms|s|m)\b", output, re.MULTILINE)
    return float(found[1]) * _UNITS[found[2]] if found else None


def _output(command: Sequence[str], *, seconds: float) -> bytes:
    limit = seconds + 60.0  # start, warm-up and a slow end
    try:
        done = subprocess.run(command, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{command[0]} did not end within {limit:g} s") from error
    if done.returncode:
        raise BenchError(f"the generator failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
