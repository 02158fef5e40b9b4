"""The load generator wrk, which takes less processor time than ours from a server on the same machine.

It sends a single body, ignores answers, and has no open loop.
"""

import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uncork_loadtests.servers import BenchError
from uncork_loadtests.traffic.plan import Plan

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_END_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class WrkResult:
    """What wrk printed. Times are in seconds."""

    requests_per_second: float
    p50: float | None
    p99: float | None
    refused: int
    """Answers other than 2xx and 3xx."""
    fault: str
    answers: int


def choose_generator(wanted: str) -> str:
    """Turn auto, python or wrk into a generator.

    Raises:
        BenchError: if wrk is wanted and not installed.
    """
    installed = shutil.which("wrk") is not None
    if wanted == "wrk" and not installed:
        raise BenchError("the program wrk is not on PATH")
    return "wrk" if installed and wanted in ("auto", "wrk") else "python"


def run_wrk(plan: Plan) -> tuple[WrkResult, int, float]:
    """Run a closed loop.

    Returns:
        The result, all answers including those of the warm-up, and the processor seconds of wrk.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "post.lua")
        fields = {"Content-Type": plan.content_type, **dict(plan.headers)}
        lines = "".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in fields.items())
        body = b"wrk.body = [==[" + plan.payload.bodies[0] + b"]==]\n"
        script.write_bytes(b'wrk.method = "POST"\n' + lines.encode() + body)
        command = ["wrk", "-t1", f"-c{plan.clients}", "--latency", "-s", str(script)]
        # wrk has no warm-up, and counts whole seconds.
        warmup = parse_wrk(_output(command, plan.url, seconds=plan.warmup_s))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = parse_wrk(_output(command, plan.url, seconds=plan.seconds))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result, warmup.answers + result.answers, cpu_s


def parse_wrk(output: str) -> WrkResult:
    """Parse the output of `wrk --latency`."""
    total = re.search(r"(\d+) requests in ([\d.]+)(us|ms|s|m)\b", output)
    if total is None:
        raise BenchError(f"cannot read what wrk printed:\n{output}")
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    # The fourth count, timeouts, is of answers slower than 2 s: they are slow, not wrong.
    lost = re.search(r"Socket errors: (connect \d+, read \d+, write \d+)", output)
    counts = re.findall(r"\d+", lost[1]) if lost else []
    answers, refused = int(total[1]), int(bad[1]) if bad else 0
    return WrkResult(
        requests_per_second=(answers - refused) / (float(total[2]) * _UNITS[total[3]]),
        p50=_percentile(output, percent=50),
        p99=_percentile(output, percent=99),
        refused=refused,
        fault=f"socket errors: {lost[1]}" if lost and any(map(int, counts)) else "",
        answers=answers,
    )


def _percentile(output: str, *, percent: int) -> float | None:
    found = re.search(rf"^ *{percent}% +([\d.]+)(us|ms|s|m)\b", output, re.MULTILINE)
    return float(found[1]) * _UNITS[found[2]] if found else None


def _output(command: Sequence[str], url: str, *, seconds: float) -> str:
    limit_s = seconds + _END_SECONDS
    try:
        done = subprocess.run(
            [*command, f"-d{max(1, round(seconds))}s", url],
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"wrk did not end within {limit_s:g} s") from error
    if done.returncode:
        raise BenchError(f"wrk failed: {done.stderr.strip()}")
    return done.stdout
