"""The texts of /status are in ``sentences.txt``, and the codes and figures of advice in ``advice.txt``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from tests.expected import check_texts
from tests.gateway.pages.status import (
    table_advice,
    table_reasons,
    table_sentence,
    table_server,
    table_waiting,
)
from uncork_dispatcher import HoldReason, ScalingState
from uncork_gateway.errors import RefusalReason
from uncork_gateway.pages.status.advise import ADVICE, advice_for
from uncork_gateway.pages.status.document import Limit
from uncork_gateway.pages.status.explain import (
    sentence,
    waits_for,
    why_refused,
    why_this_size,
)
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.names import PROXY, SERVICE, Names
from uncork_gateway.pages.status.slots import describe_scaling, doing

Text = Callable[[Figures, Names], str | None]
OF_ONE_API: dict[str, tuple[Text, Mapping[str, Figures]]] = {
    "sentence": (sentence, table_sentence.CASES),
    "waits_for": (waits_for, table_waiting.CASES),
    "why_this_size": (why_this_size, table_reasons.BATCH_SIZES),
    "why_refused": (why_refused, table_reasons.REFUSALS),
}


def names_of(case: str) -> Names:
    """Return the words of a service, or of a proxy if the case is called so."""
    return PROXY if "proxy" in case else SERVICE


def test_every_sentence_is_as_reviewed() -> None:
    texts: dict[str, dict[str, str | None]] = {
        field: {case: make(made, names_of(case)) for case, made in cases.items()}
        for field, (make, cases) in OF_ONE_API.items()
    }
    texts["sentence of the whole"] = {
        case: stage.document().sentence for case, stage in table_server.SENTENCES.items()
    }
    texts["doing"] = {case: doing(*given) for case, given in table_server.ACTIVITIES.items()}
    for name, startup_s in (("scaling", None), ("scaling, with the time of a start", 12.34)):
        texts[name] = {
            state: describe_scaling(decision, least=2, most=16, startup_s=startup_s).sentence
            for state, decision in table_server.SCALING.items()
        }
    lines = [
        line
        for field, of_field in texts.items()
        for line in (f"# {field}", *(f"{case}\n    {text}" for case, text in of_field.items()), "")
    ]

    check_texts(Path(__file__).with_name("sentences.txt"), "\n".join(lines))


def test_scaling_has_its_numbers() -> None:
    described = describe_scaling(table_server.SCALING["confirming"], least=2, most=16, startup_s=12.34)
    numbers = (described.wanted, described.target, described.least, described.most, described.start_s)
    assert (*numbers, described.state) == (7, 5, 2, 16, 12.34, "confirming")


def test_advice_is_as_reviewed() -> None:
    """``advice.txt`` has all advice for each case, with its figures."""
    lines: list[str] = []
    for case, made in [*table_advice.CASES.items(), *table_advice.LOOKS.items()]:
        advice = advice_for(made, names_of(case))
        lines += [case, *(f"    {one.code} {_rounded(one.figures)}" for one in advice)]
        assert case in table_advice.LOOKS or case.partition(",")[0] in [one.code for one in advice]

    check_texts(Path(__file__).with_name("advice.txt"), "\n".join([*lines, ""]))


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in figures.items()
    }


def test_the_page_lists_every_code() -> None:
    page = (Path(__file__).parents[4] / "docs/reference/status.md").read_text()
    section = page.partition("## Advice")[2].partition("## ")[0]

    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(ADVICE)


def test_every_reason_limit_and_code_has_a_case() -> None:
    holds = {made.stats.holding.reason for made in table_waiting.CASES.values() if made.stats.holding}
    refusals = list(table_reasons.REFUSALS.values())
    sheds = {reason for made in refusals for reason in made.recent.counts.sheds}
    limits = {made.limited_by for made in table_sentence.CASES.values()}

    assert holds == set(get_args(HoldReason))
    # No API refuses a connection.
    assert sheds == set(get_args(RefusalReason)) - {"too_many_connections"}
    assert limits == set(get_args(Limit))
    assert table_server.SCALING.keys() == set(get_args(ScalingState))
    assert {case.partition(",")[0] for case in table_advice.CASES} == set(ADVICE)
