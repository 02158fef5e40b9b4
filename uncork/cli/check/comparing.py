"""Compare the results of rows alone with those in a batch, and in the same batch in reverse order."""

import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, permutations
from operator import attrgetter
from typing import Any

import msgspec

from uncork.cli.check.differences import difference
from uncork.cli.check.figures import Comparison
from uncork.cli.check.growing import Batches, Died, Failed, OutOfMemory, Refused, Unknown
from uncork_gateway.dialects.base import HandlerResult
from uncork_workers.definition.adapters.base import UNREADABLE
from uncork_workers.wire.forms import expand_forms

Results = Callable[[Sequence[bytes]], Awaitable[list[HandlerResult]]]

_MOST_ROWS = 4
# Factors for the numbers in a row, in quarters. They differ, because a handler may normalize each row.
_FACTORS = ((8, 2, 5), (1, 2, 3))


async def compare(
    batches: Batches, *, most_rows: float, seconds: float, resize: bool = True, keep: Sequence[str] = ()
) -> Comparison | None:
    """Run the example and changed copies of it alone and in batches, with at most eight calls.

    Args:
        batches: of the example.
        most_rows: the most rows of a batch.
        seconds: the time after which no call begins.
        resize: whether rows of different lengths may share a batch.
        keep: the fields whose values rows must share to share a batch.

    Returns:
        The comparison; None if a batch has no room for two rows.
    """
    most = int(min(_MOST_ROWS, most_rows, max(batches.sizes)))
    if most < 2:
        return None
    results = partial(_results, batches, time.perf_counter() + seconds)
    try:
        copies = changed_rows(batches.example.sample.body, resize=resize, keep=keep)
        rows, alone, why = await _rows(batches, results, copies, most)
        found = await _compared(batches, results, rows, alone, most)
    except Unknown as error:
        why = str(error)
    except TimeoutError:
        why = "a batch did not finish within timeout"
    except (Refused, Failed, OutOfMemory) as error:
        why = f"the handler {_verb(error)}"
    else:
        is_equal = len(rows) == 1 and not found.key
        return Comparison(key="not-compared/equal", figures={"why": why}) if is_equal else found
    return Comparison(key="not-compared", figures={"why": why})


async def _rows(
    batches: Batches, results: Results, copies: Sequence[bytes], most: int
) -> tuple[list[bytes], list[HandlerResult], str]:
    """Return the example and some of its changed copies, their results, and why there are no more."""
    own = batches.example.sample.body
    rows, alone, why = [own], await results([own]), "the example has nothing to change"
    for changed in copies[: _MOST_ROWS - 1]:
        if len(rows) == most or not batches.fit([*rows, changed]):
            why = "changed rows do not fit into a batch"
            continue
        try:
            alone += await results([changed])
        except Died:
            raise
        except (Refused, Failed, OutOfMemory) as error:
            why = f"with a changed row, the handler {_verb(error)}"
        else:
            rows.append(changed)
    return rows, alone, why


async def _compared(
    batches: Batches, results: Results, rows: Sequence[bytes], alone: Sequence[HandlerResult], most: int
) -> Comparison:
    places = [at % len(rows) for at in range(most)]
    while not batches.fit([rows[at] for at in places]):
        places.pop()
    found: list[tuple[Comparison, list[bytes], list[HandlerResult]]] = []
    for order in (places, places[::-1]):
        batch = [rows[at] for at in order]
        try:
            together = await results(batch)
        except (Refused, Failed) as error:
            figures = {"rows": len(batch), "says": _verb(error)}
            return Comparison(key="handler-fails/mixed", figures=figures, excess=math.inf)
        found.append((_fault([alone[at] for at in order], together), batch, together))
    unlike = _unlike(alone[:1], await results(rows[:1]))
    fault, batch, together = max(found, key=lambda one: one[0].excess)
    if fault.key and not unlike.key:
        unlike = _unlike(together, await results(batch))
    return replace(unlike, key="not-deterministic", excess=0.0) if unlike.key else fault


async def _results(batches: Batches, ends: float, bodies: Sequence[bytes]) -> list[HandlerResult]:
    """Run a batch of rows; raise Unknown if the time is over."""
    if time.perf_counter() > ends:
        raise Unknown("the time is over; raise --seconds")
    executed, _ = await batches.of(bodies)
    types = executed.reply.content_types or [""] * len(bodies)
    forms = expand_forms(executed.reply.forms, len(bodies))
    return [
        HandlerResult(200, body, form, content_type)
        for body, form, content_type in zip(executed.bodies, forms, types, strict=True)
    ]


def _verb(error: Refused | Failed | OutOfMemory) -> str:
    return f"returns {error}" if isinstance(error, Refused) else str(error)


def _unlike(first: Sequence[HandlerResult], second: Sequence[HandlerResult]) -> Comparison:
    """Return the greatest difference between the results of two runs of the same batch."""
    return max(map(difference, first, second), key=attrgetter("excess"))


def _fault(alone: Sequence[HandlerResult], together: Sequence[HandlerResult]) -> Comparison:
    """Compare the results of a batch with those of its rows alone."""
    unlike = [[difference(own, other) for other in together] for own in alone]
    places = range(len(alone))
    at = max(places, key=lambda place: unlike[place][place].excess)
    worst = unlike[at][at]
    if not worst.key:
        return worst
    figures: dict[str, Any] = {"at": at + 1, "rows": len(alone)}
    for order in permutations(places):
        if not any(unlike[own][place].key for place, own in enumerate(order)):
            figures["origin"] = order[at] + 1
            return Comparison(key="batch-order", figures=figures, excess=math.inf)
    return replace(worst, figures={**figures, **worst.figures})


def changed_rows(body: bytes, *, resize: bool, keep: Sequence[str] = ()) -> list[bytes]:
    """Return copies of a JSON row with other numbers, then with texts and lists of other lengths.

    The fields ``keep``, which the row must have, stay as they are.
    """
    try:
        row = msgspec.json.decode(body)
        rest = {name: row[name] for name in row if name not in keep} if keep else row
        made = [_scaled(rest, cycle(quarters)) for quarters in _FACTORS]
        if resize:
            made += [_resized(rest, is_longer=True), _resized(rest, is_longer=False)]
        if keep:
            made = [row | one for one in made]
        return list(dict.fromkeys(msgspec.json.encode(one) for one in made if one != row))
    except UNREADABLE:
        return []  # it has NaN


def _scaled(value: Any, quarters: Iterator[int]) -> Any:
    match value:
        case bool():
            return value if next(quarters) < 4 else not value
        case int():
            factor = next(quarters)
            return value * factor // 4 if value else factor // 4
        case float():
            return (value or 1.0) * next(quarters) / 4
        case list():
            return [_scaled(one, quarters) for one in value]
        case dict():
            return {name: _scaled(one, quarters) for name, one in value.items()}
    return value


def _resized(value: Any, *, is_longer: bool) -> Any:
    """Return a row whose texts and innermost lists are three times or half as long."""
    match value:
        case str():
            return " ".join([value] * 3) if is_longer else value[: (len(value) + 1) // 2]
        case list() if not any(isinstance(one, list | dict) for one in value):
            return value * 3 if is_longer else value[: (len(value) + 1) // 2]
        case list():
            return [_resized(one, is_longer=is_longer) for one in value]
        case dict():
            return {name: _resized(one, is_longer=is_longer) for name, one in value.items()}
    return value
