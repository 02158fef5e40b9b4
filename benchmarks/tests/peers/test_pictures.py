"""Pictures of the comparison with peers; that they can be read is seen by eye."""

from dataclasses import replace

from benchmarks.peers.pictures import by_model
from benchmarks.tests.peers.made_up_rounds import result, rounds


def test_runs_of_one_model_are_joined() -> None:
    """In the order in which the models come first."""
    first, second = (result(uncork=rounds(p50=[seconds])) for seconds in (0.001, 0.002))
    other = replace(first, work="digits")

    assert by_model([first, other, second]) == [replace(first, points=[*first.points, *second.points]), other]
