"""The load generator wrk, which takes less CPU time than ours from a server on the same machine.

It sends a single body, ignores answers, and has no open loop.
"""

import re
import shutil
import tempfile
from pathlib import Path

from benchmarks.harness.commands import run_generator
from benchmarks.harness.rounds import Round
from uncork_loadtests.servers import BenchError
from uncork_loadtests.traffic.plan import Plan

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def choose_generator(wanted: str) -> str:
    """Turn auto, python or wrk into a generator.

    Raises:
        BenchError: if wrk is wanted and not installed.
    """
    installed = shutil.which("wrk") is not None
    if wanted == "wrk" and not installed:
        raise BenchError("the program wrk is not on PATH")
    return "wrk" if installed and wanted in ("auto", "wrk") else "python"


def run_wrk(plan: Plan) -> tuple[Round, int]:
    """Run a closed loop; return its figures, and the number of answers including the warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "post.lua")
        fields = {"Content-Type": plan.content_type, **dict(plan.headers)}
        lines = "".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in fields.items())
        body = b"wrk.body = [==[" + plan.payload.bodies[0] + b"]==]\n"
        script.write_bytes(b'wrk.method = "POST"\n' + lines.encode() + body)
        command = ["wrk", "-t1", f"-c{plan.clients}", "--latency", "-s", str(script)]
        # wrk has no warm-up, and counts whole seconds.
        (_, before), (found, answers) = (
            parse_wrk(run_generator([*command, f"-d{max(1, round(time_s))}s", plan.url], seconds=time_s))
            for time_s in (plan.warmup_s, plan.seconds)
        )
    return found, before + answers


def parse_wrk(output: str) -> tuple[Round, int]:
    """Return the figures in the output of `wrk --latency`, and the number of answers."""
    total = re.search(r"(\d+) requests in ([\d.]+)(us|ms|s|m)\b", output)
    if total is None:
        raise BenchError(f"cannot read what wrk printed:\n{output}")
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    # The fourth count, timeouts, is of answers slower than 2 s: they are slow, not wrong.
    lost = re.search(r"Socket errors: (connect \d+, read \d+, write \d+)", output)
    counts = re.findall(r"\d+", lost[1]) if lost else []
    answers, refused = int(total[1]), int(bad[1]) if bad else 0
    found = Round(
        requests_per_second=(answers - refused) / (float(total[2]) * _UNITS[total[3]]),
        p50=_percentile(output, percent=50),
        p99=_percentile(output, percent=99),
        refused=refused,
        fault=f"socket errors: {lost[1]}" if lost and any(map(int, counts)) else "",
    )
    return found, answers


def _percentile(output: str, *, percent: int) -> float | None:
    found = re.search(rf"^ *{percent}% +([\d.]+)(us|ms|s|m)\b", output, re.MULTILINE)
    return float(found[1]) * _UNITS[found[2]] if found else None
