"""The cost of merging requests and splitting replies, compared with Python's ``json``.

``scripts/bench marshalling`` runs it. Both alternate in one process and do the work of a proxy for one call:
read each request, write the call, read the reply, write each answer.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from statistics import median

from rich.table import Table

from uncork.cli.terminal import show
from uncork_gateway.protocols.rows import RowsWire
from uncork_gateway.protocols.wire import Content

_REQUESTS = 64
_WIRE = RowsWire(add_batch_id=True)
# One answer as short as a class, one as long as the question.
_CASES = {
    "4 floats, 1 returned": (4, False),
    "4 floats, 4 returned": (4, True),
    "10,000 floats, 1 returned": (10_000, False),
    "10,000 floats, 10,000 returned": (10_000, True),
}


def main() -> None:
    """Print microseconds of processor time per request, and the ratio."""
    parser = argparse.ArgumentParser(description="Measure the cost of merging and splitting.")
    parser.add_argument("--rounds", type=int, default=11, help="measurements of each (default 11)")
    rounds = parser.parse_args().rounds
    table = Table(title=f"KServe V1, {_REQUESTS} requests of one row in a call: processor time per request")
    for column in ("row", "spliced µs", "json µs", "json / spliced"):
        table.add_column(column, justify="left" if column == "row" else "right")
    for name, (length, long_answer) in _CASES.items():
        bodies, reply = _traffic(length, long_answer=long_answer)
        assert [json.loads(answer) for answer in spliced(bodies, reply)] == [
            json.loads(answer) for answer in parsed(bodies, reply)
        ]
        pairs = [(_cost_us(spliced, bodies, reply), _cost_us(parsed, bodies, reply)) for _ in range(rounds)]
        ours, theirs = (median(each) for each in zip(*pairs, strict=True))
        ratio = median(theirs / ours for ours, theirs in pairs)
        table.add_row(name, f"{ours:.1f}", f"{theirs:.1f}", f"{ratio:.1f}")
    show([table])


def spliced(bodies: Sequence[bytes], reply: bytes) -> list[bytes]:
    """Merge and split as the gateway does."""
    requests = [_WIRE.parse(Content(body)) for body in bodies]
    _WIRE.merge(requests)
    replies = _WIRE.split(Content(reply), requests)
    return [
        _WIRE.render(one, request, batch_id="b").body for one, request in zip(replies, requests, strict=True)
    ]


def parsed(bodies: Sequence[bytes], reply: bytes) -> list[bytes]:
    """Merge and split with Python objects."""
    requests = [json.loads(body)["instances"] for body in bodies]
    json.dumps({"instances": [row for rows in requests for row in rows]}).encode()
    predictions = json.loads(reply)["predictions"]
    answers, at = [], 0
    for rows in requests:
        answer = {"message": "", "batchId": "b", "predictions": predictions[at : at + len(rows)]}
        answers.append(json.dumps(answer).encode())
        at += len(rows)
    return answers


def _traffic(length: int, *, long_answer: bool) -> tuple[list[bytes], bytes]:
    random_ = random.Random(length)
    rows = [[random_.random() for _ in range(length)] for _ in range(_REQUESTS)]
    bodies = [json.dumps({"instances": [row]}).encode() for row in rows]
    predictions = rows if long_answer else list(range(_REQUESTS))
    return bodies, json.dumps({"predictions": predictions}).encode()


def _cost_us(
    work: Callable[[Sequence[bytes], bytes], object], bodies: Sequence[bytes], reply: bytes
) -> float:
    """Return the lowest of a few times per request: disturbances of the machine only add."""
    times = []
    for _ in range(3):
        before = time.process_time_ns()
        work(bodies, reply)
        times.append(time.process_time_ns() - before)
    return min(times) / 1000 / len(bodies)


if __name__ == "__main__":
    main()
