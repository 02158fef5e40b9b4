"""Which media type an answer has: what the client takes first of what the api can give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def choose(accept: Sequence[bytes], offers: Sequence[str]) -> str:
    """The offer to give to a client that says ``accept``.

    By the client's weights, of which the most specific counts (RFC 9110, 12.5.1); of equal ones by its
    order, then by that of the offers. A client that takes nothing of what there is gets the first: an answer
    is worth more than 406.
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
"""Whatever has a weight ranks above it, and what has none below."""


def _wanted(accept: str) -> Iterator[tuple[str, tuple[float, int]]]:
    """Each media range, with its weight and place; what comes first has the higher place."""
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
