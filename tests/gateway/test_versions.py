"""Which version of a service answers a request that names none."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_gateway.versions import Candidate, ServiceName, VersionChoice, VersionedRoute


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    """Some versions, in any order."""
    versions = draw(st.lists(st.integers(1, 50), min_size=1, max_size=5, unique=True))
    return [
        Candidate(
            version=str(version),
            weight=draw(st.none() | st.sampled_from([0.0, 1.0, 5.0])),
            shadow=draw(st.booleans()),
            is_ready=draw(st.sampled_from([lambda: True, lambda: False])),
        )
        for version in versions
    ]


def chosen(options: list[Candidate], at: float = 0.0) -> Candidate:
    return VersionChoice([(one, one) for one in options], random=lambda: at).choose()


@given(candidates(), st.floats(0, 1, exclude_max=True))
def test_the_rule(options: list[Candidate], at: float) -> None:
    """Weighted and ready, else the highest ready, else the highest; a weight of 0 and shadows come last."""
    answering = [one for one in options if not one.shadow] or options
    ready = [one for one in answering if one.is_ready()]
    weighted = [one for one in ready if one.weight]
    answer = chosen(options, at)
    if weighted:
        assert answer in weighted
    else:
        assert answer == max(ready or answering, key=lambda one: (one.weight != 0, int(one.version)))


def test_weights_are_shares() -> None:
    options = [Candidate(version="1", weight=3), Candidate(version="2", weight=1), Candidate(version="3")]
    counts = Counter(chosen(options, number / 100).version for number in range(100))
    assert counts == {"1": 75, "2": 25}


@pytest.mark.parametrize("weight", [None, 1.0])
def test_a_new_version_without_weight_gets_nothing(weight: float | None) -> None:
    """While another is ready, or when none is."""
    ready = [Candidate(version="1", weight=weight), Candidate(version="2", weight=0)]
    none = [replace(one, is_ready=lambda: False) for one in ready]
    assert [chosen(options).version for options in (ready, none, [none[0], ready[1]])] == ["1", "1", "2"]


def test_ten_is_higher_than_nine() -> None:
    assert chosen([Candidate(version="9"), Candidate(version="10")]).version == "10"


def test_names() -> None:
    assert ServiceName.read("digits") == ServiceName.read("digits@1") == ("digits", "1")
    assert ServiceName.read("digits@12") == ("digits", "12")


class Route:
    """Reads heads, and opens requests, as itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read_head(self, headers: Any, target: bytes) -> str:
        return f"head of {self.name}"

    def open(self, connection: Any, head: str, *, keep_alive: bool) -> Any:
        return self.name, head, keep_alive


def test_a_head_is_read_for_the_version_that_answers() -> None:
    """Also if that is another one for the next request with the same head."""
    is_ready = True
    route = VersionedRoute(
        [
            (Candidate(version="1"), Route("one")),
            (Candidate(version="2", is_ready=lambda: is_ready), Route("two")),
        ]
    )
    connection: Any = None
    head = route.read_head([], b"/")
    opened: list[Any] = [route.open(connection, head, keep_alive=True)]
    is_ready = False
    opened.append(route.open(connection, head, keep_alive=False))
    assert opened == [("two", "head of two", True), ("one", "head of one", False)]
