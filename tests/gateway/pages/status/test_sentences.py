"""Every text of /status, literally: a table of what it says, and checks that nothing is missing in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from tests.gateway.pages.status import (
    table_advice,
    table_reasons,
    table_sentence,
    table_server,
    table_waiting,
)
from uncork_dispatcher import HoldReason, Reason
from uncork_dispatcher.learning.measures import Measure
from uncork_gateway.pages.status import advise as advise_module
from uncork_gateway.pages.status import explain, phrases, reasons, slots
from uncork_gateway.pages.status.advise import ADVICE, advise
from uncork_gateway.pages.status.document import Limit
from uncork_gateway.pages.status.explain import sentence, waits_for
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.formatting import PROXY, SERVICE, Names
from uncork_gateway.pages.status.reasons import RefusalCause, why_refused, why_this_size
from uncork_gateway.pages.status.slots import doing

Table = dict[str, tuple[Names, Figures, str]]
OF_ONE_API: list[Table] = [
    table_sentence.CASES,
    table_waiting.CASES,
    table_reasons.BATCH_SIZES,
    table_reasons.REFUSALS,
    table_advice.CASES,
]
MODULES = (explain, reasons, phrases, advise_module, slots)


def as_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("case", table_sentence.CASES)
def test_the_recent_past(case: str) -> None:
    names, made, text = table_sentence.CASES[case]

    assert sentence(made, names) == as_line(text)


@pytest.mark.parametrize("case", table_waiting.CASES)
def test_what_the_queue_waits_for(case: str) -> None:
    names, made, text = table_waiting.CASES[case]

    assert waits_for(made, names) == text


@pytest.mark.parametrize("case", table_reasons.BATCH_SIZES)
def test_why_batches_have_their_size(case: str) -> None:
    names, made, text = table_reasons.BATCH_SIZES[case]

    assert why_this_size(made, names) == text


@pytest.mark.parametrize("case", table_reasons.REFUSALS)
def test_why_requests_are_refused(case: str) -> None:
    names, made, text = table_reasons.REFUSALS[case]

    assert why_refused(made, names) == text


@pytest.mark.parametrize("case", table_advice.CASES)
def test_what_to_change(case: str) -> None:
    names, made, text = table_advice.CASES[case]

    assert {one.code: one.text for one in advise(made, names)}[case.partition(",")[0]] == text


@pytest.mark.parametrize("case", table_server.SENTENCES)
def test_the_state_of_the_whole(case: str) -> None:
    stage, text = table_server.SENTENCES[case]

    assert stage.document().sentence == text


@pytest.mark.parametrize("case", table_server.ACTIVITIES)
def test_what_a_worker_does(case: str) -> None:
    slot, batch, text = table_server.ACTIVITIES[case]

    assert doing(slot, batch) == text


def test_every_reason_limit_and_code_is_in_the_table() -> None:
    holds = {made.stats.holding.reason for _, made, _ in table_waiting.CASES.values() if made.stats.holding}
    sizes, refusals = table_reasons.BATCH_SIZES.values(), table_reasons.REFUSALS.values()
    releases = {reason for _, made, _ in sizes for reason in made.recent.counts.releases}
    sheds = {reason for _, made, _ in refusals for reason in made.recent.counts.sheds}
    no_room = {"no_room" for _, made, _ in refusals if made.recent.refused > made.recent.counts.sheds.total()}
    measures = {
        made.stats.padding.measure for _, made, _ in table_sentence.CASES.values() if made.stats.padding
    }
    limits = {made.limited_by for _, made, _ in table_sentence.CASES.values()}

    assert holds == set(get_args(HoldReason))
    assert releases == set(get_args(Reason))
    assert sheds | no_room == {reason for part in get_args(RefusalCause) for reason in get_args(part)}
    assert measures == set(get_args(Measure))
    assert limits == set(get_args(Limit))
    assert {case.partition(",")[0] for case in table_advice.CASES} == set(ADVICE)


def pieces(path: Path) -> Iterator[str]:
    """Yield the constant parts of the texts that a module makes: strings with a space, but no docstrings."""
    tree = ast.parse(path.read_text())
    described = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, described)]
    docstrings = {id(node.body[0].value) for node in nodes if isinstance(node.body[0], ast.Expr)}
    # A string after an assignment describes it.
    docstrings |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from (piece for piece in re.split(r"{\w+}", node.value) if " " in piece.strip())


def table_texts() -> str:
    texts = [text for table in OF_ONE_API for _, _, text in table.values()]
    texts += [text for _, text in table_server.SENTENCES.values()]
    texts += [text for _, _, text in table_server.ACTIVITIES.values()]
    return "\n".join(map(as_line, texts))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_text_of_the_program_is_in_the_table(module: object) -> None:
    """A new sentence, or a new half of one, needs a row."""
    found, texts = list(pieces(Path(str(vars(module)["__file__"])))), table_texts().lower()

    assert found
    assert [piece for piece in found if piece.strip().lower() not in texts] == []


@pytest.mark.parametrize("names", [SERVICE, PROXY], ids=["serve", "proxy"])
def test_every_name_is_in_the_table(names: Names) -> None:
    texts = table_texts()
    for field in fields(names):
        for piece in re.split(r"{\w+}", getattr(names, field.name) or ""):
            assert piece.strip() in texts, field.name
