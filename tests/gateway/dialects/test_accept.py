"""Content negotiation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_gateway.dialects.accept import choose

JSON, CSV, NPY = "application/json", "text/csv", "application/x-npy"
OFFERS = (JSON, NPY, CSV)
PNG, JPEG = "image/png", "image/jpeg"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", JSON),
        ("Text/CSV", CSV),
        (" text/csv ; header=present ; q=0.5 ", CSV),
        ("nonsense", JSON),
        (",,;;,", JSON),
        ("text/html, application/xhtml+xml, application/xml;q=0.9, */*;q=0.8", JSON),
        ("application/json;q=0.5, text/csv;Q=0.8", CSV),
        ("text/csv;q=x", CSV),
        ("text/csv;q=", CSV),
        ("text/csv;q=nan, application/json;q=0.9", CSV),
        ("text/csv;q=inf, application/json;q=0.9", CSV),
        ("application/x-npy;q=9, text/csv", NPY),
        ("text/csv;q=0.001", CSV),
    ],
)
def test_the_client_weighs(accept: str, chosen: str) -> None:
    """What is no weight counts as 1; a client that accepts no offer gets the first."""
    assert choose([accept.encode()], OFFERS) == chosen


def test_a_client_that_says_nothing_gets_the_first() -> None:
    for offers in ((JSON, CSV), (CSV, JSON), (PNG,)):
        assert choose([], offers) == choose([b""], offers) == choose([b"x/y"], offers) == offers[0]


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [("image/*", PNG), ("image/jpeg", JPEG), ("image/webp,*/*", PNG), ("image/jpeg, image/*;q=0.8", JPEG)],
)
def test_images_are_chosen_by_format(accept: str, chosen: str) -> None:
    assert choose([accept.encode()], (PNG, JPEG)) == chosen


def test_several_headers_are_one() -> None:
    assert choose([b"text/html", b"text/csv;q=0.5"], OFFERS) == CSV
    assert choose([b"text/csv;q=0.5", b"application/json"], OFFERS) == JSON


RANGES = st.sampled_from([*OFFERS, "text/*", "application/*", "*/*", "text/html"])
ONES = st.tuples(RANGES, st.integers(0, 10)).map(lambda one: (one[0], f"{one[0]};q={one[1] / 10}", one[1]))


@given(ones=st.lists(ONES, unique_by=lambda one: one[0], max_size=5), offers=st.permutations(OFFERS))
def test_nothing_better_is_left(ones: list[tuple[str, str, int]], offers: list[str]) -> None:
    """No other offer has a higher weight, or an equal one listed earlier."""
    weights = {media_range: weight for media_range, _, weight in ones}
    places = [media_range for media_range, _, _ in ones]

    def merit(offer: str) -> tuple[int, int, int]:
        ranges = [offer, offer.split("/")[0] + "/*", "*/*"]
        found = next((one for one in ranges if one in weights), None)
        if found is None or not weights[found]:
            return 0, 0, -offers.index(offer)
        return weights[found], -places.index(found), -offers.index(offer)

    chosen = choose([", ".join(text for _, text, _ in ones).encode()], offers)

    assert chosen == max(offers, key=merit)


@given(accept=st.lists(st.binary(max_size=30) | st.text(";,q=0.1/*- \t").map(str.encode), max_size=3))
def test_any_header_is_understood_somehow(accept: list[bytes]) -> None:
    assert choose(accept, OFFERS) in OFFERS
