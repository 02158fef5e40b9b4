"""Rounds of the comparison with peers, as CSV."""

import io
from dataclasses import replace

from benchmarks.peers.rounds import write_rounds
from benchmarks.tests.peers.made_up_rounds import result, rounds


def test_a_line_for_each_server_and_round() -> None:
    """Void rounds, and those that could not be measured, have no figures."""
    first, second = rounds(requests_per_second=[100.0, 12345.678])
    written = io.StringIO()

    write_rounds([result(uncork=[first, None], peer=[replace(first, void="late"), second])], written)

    assert written.getvalue().splitlines() == [
        "model,load,server,round,requests_per_second,p50,p99,in_goal,front_cpu,all_cpu,rows_per_batch,refused",
        "sleep,64 clients,uncork,1,100,0.002,0.004,,0.05,0.2,,0",
        "sleep,64 clients,uncork,2,,,,,,,,",
        "sleep,64 clients,peer,1,,,,,,,,",
        "sleep,64 clients,peer,2,12346,0.002,0.004,,0.05,0.2,,0",
    ]
