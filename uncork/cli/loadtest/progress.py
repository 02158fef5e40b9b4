"""Run a load test with a progress bar."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from uncork_loadtests.generator.fleet import Outcome, run
from uncork_loadtests.generator.share import Progress as Seen
from uncork_loadtests.traffic.plan import Plan


def measure(plan: Plan, *, console: Console) -> Outcome:
    """Run a plan; the bar is shown only on a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("warming up", total=plan.warmup_s + plan.seconds, now="")

        def tell(seen: Seen) -> None:
            progress.update(
                bar,
                description="warming up" if seen.at_s < 0 else "measuring",
                completed=seen.at_s + plan.warmup_s,
                now=_now(seen),
            )

        return run(plan, tell=tell)


def _now(seen: Seen) -> str:
    parts = [f"{seen.good / seen.seconds:.0f}/s successful"]
    if seen.p50_ms is not None and seen.p99_ms is not None:
        parts.append(f"p50 {seen.p50_ms:.1f} ms, p99 {seen.p99_ms:.1f} ms")
    parts.append(f"{seen.outstanding} pending")
    if seen.shed:
        parts.append(f"{seen.shed} shed")
    return ", ".join(parts)
