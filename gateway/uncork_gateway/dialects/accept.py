"""Content negotiation: chooses the media type of a response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def choose(accept: Sequence[bytes], offers: Sequence[str]) -> str:
    """Return the offered media type that the values of ``Accept`` prefer.

    The client's weights decide, the most specific for each offer (RFC 9110, 12.5.1); then its order, then the
    order of offers. A client that accepts no offer gets the first rather than 406.
    """
    if not accept:
        return offers[0]
    wanted = dict(_wanted(b",".join(accept).decode("latin-1")))

    def rank(offer: str) -> tuple[float, int]:
        for media_range in (offer, f"{offer.partition('/')[0]}/*", "*/*"):
            if media_range in wanted:
                return wanted[media_range]
        return _UNWANTED

    best = max(offers, key=rank)
    return best if rank(best) > _UNWANTED else offers[0]


_UNWANTED = (0.0, 1)
"""The rank of offers that the client does not name: below all weights but 0."""


def _wanted(accept: str) -> Iterator[tuple[str, tuple[float, int]]]:
    """Yield each media range with its weight and its rank; earlier ranges have the higher rank."""
    for place, one in enumerate(accept.split(",")):
        media_range, *parameters = (part.strip().lower() for part in one.split(";"))
        weight = next((_weight(each[2:]) for each in parameters if each.startswith("q=")), 1.0)
        yield media_range, (weight, -place)


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return weight if 0 <= weight <= 1 else 1.0
