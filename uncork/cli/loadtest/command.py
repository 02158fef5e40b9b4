"""``uncork loadtest``, with a progress bar."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from uncork.cli.command import takes_plain_options
from uncork.cli.loadtest.measuring import measuring
from uncork.cli.loadtest.options import LoadtestOptions
from uncork.cli.loadtest.tables import as_json, heading, tables
from uncork.cli.loadtest.traffic import is_url
from uncork.cli.terminal import INTERRUPTED, as_text, print_error, telling, write_files
from uncork.cli.usage import refusals
from uncork_dispatcher.wording import plural
from uncork_loadtests.generator.fleet import Outcome, run
from uncork_loadtests.generator.share import Progress as Seen
from uncork_loadtests.reports.page import write_page
from uncork_loadtests.reports.panels import panels
from uncork_loadtests.targets import Estimate, aimed_at, aimed_at_url, api_at, apis, estimate, our_service
from uncork_loadtests.traffic.plan import Plan


@takes_plain_options
def loadtest(options: LoadtestOptions) -> None:
    """Load-test a service or a URL, and report its latency and throughput.

    An open loop (--rate) sends requests on schedule, even if earlier ones are still pending; latency is
    measured from the scheduled time. A run is void if the load generator fell behind: the p99 of its lag
    exceeds 1 ms and a tenth of the p99 latency. The exit code is 1 if the run is void, a response is wrong,
    none is successful, or most requests fail with a status other than 503.
    """
    with refusals("loadtest"):
        plan = options.plan()
    with measuring("loadtest"), _running(options, plan) as (aimed, ask_estimate):
        outcome = measure(aimed, console=Console(stderr=True))
        known = ask_estimate()
    code = _show(outcome, known, options)
    raise typer.Exit(INTERRUPTED if outcome.interrupted else code)


@contextlib.contextmanager
def _running(options: LoadtestOptions, plan: Plan) -> Iterator[tuple[Plan, Callable[[], Estimate | None]]]:
    """Give the plan with the URL of the target, and a function that asks the gateway for its estimate.

    A service is started, and stopped at the end of the block.
    """
    if is_url(options.target):
        yield aimed_at_url(plan), lambda: None
        return
    with contextlib.ExitStack() as stack:
        with telling() as tell:
            tell(f"starting {options.target}")
            server = stack.enter_context(our_service(options.target, options=options.serve))
        api = api_at(options.path, of=apis(server))
        yield aimed_at(api, plan, server), lambda: estimate(server, path=api.route)


def _show(outcome: Outcome, known: Estimate | None, options: LoadtestOptions) -> int:
    if not outcome.measured_s:
        print_error("loadtest", "the run ended during the warm-up; nothing was measured")
        return 1
    summary = outcome.summary()
    text = as_text(tables(outcome, summary, estimate=known))
    pages = []
    if options.report is not None:
        plain = as_text(tables(outcome, summary, estimate=known), styled=False)
        draw = partial(write_page, title=heading(outcome), text=plain, void=outcome.void)
        pages.append(partial(draw, options.report, panels=panels(outcome, known)))
    code = write_files("loadtest", options.json, partial(as_json, outcome, summary, estimate=known), *pages)
    if options.json != "-":
        typer.echo(text)
    faults = [f"void: {outcome.void}; lower the rate, or raise --processes"] if outcome.void else []
    if summary.wrong:
        faults.append(f"{plural(summary.wrong, 'wrong response')}; first: {outcome.first_wrong}")
    if outcome.failure:
        faults.append(outcome.failure)
    for fault in faults:
        print_error("loadtest", fault)
    return 1 if faults else code


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
