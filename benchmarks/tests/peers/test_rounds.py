"""Rounds of the comparison with peers, as CSV."""

import io
from dataclasses import replace

import msgspec

from benchmarks.peers.contest import Point
from benchmarks.peers.rounds import write_rounds
from benchmarks.tests.peers.made_up_rounds import rounds


def test_a_line_for_each_server_and_round() -> None:
    """Void rounds, and those that could not be measured, have no figures."""
    measured = rounds(requests_per_second=[100.0, 12345.678])
    point = Point(
        work="sleep 1 + 0.02n ms",
        load="closed loop, 16 clients",
        connections=16,
        rate=None,
        limit=None,
        goal_s=None,
        rounds={"uncork": [measured[0], None], "peer": [replace(measured[0], void="late"), measured[1]]},
        verdicts=[],
    )
    written = io.StringIO()

    write_rounds([{"results": [{"points": [msgspec.to_builtins(point)]}]}], written)

    start = 'sleep 1 + 0.02n ms,"closed loop, 16 clients"'
    assert written.getvalue().splitlines() == [
        "model,load,server,round,requests_per_second,p50,p99,in_goal,front_cpu,all_cpu,rows_per_batch,refused",
        f"{start},uncork,1,100,0.002,0.004,,0.05,0.2,,0",
        f"{start},uncork,2,,,,,,,,",
        f"{start},peer,1,,,,,,,,",
        f"{start},peer,2,12346,0.002,0.004,,0.05,0.2,,0",
    ]
