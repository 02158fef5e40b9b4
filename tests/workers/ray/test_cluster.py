"""What is said about a cluster, without one."""

import pytest

from uncork_workers.ray.cluster import describe_shortage, one_line

SMALL, LARGE = {"CPU": 4.0}, {"CPU": 8.0, "GPU": 2.0}


@pytest.mark.parametrize(
    ("needs", "says"),
    [
        ({"CPU": 1.0, "GPU": 0.0}, "each needs 1 CPU, the Ray cluster has 0.5 of 12 CPU free"),
        (
            {"CPU": 8.0, "GPU": 0.5},
            "each needs 8 CPU and 0.5 GPU, the Ray cluster has 0.5 of 12 CPU and 0 of 2 GPU free",
        ),
        (
            {"CPU": 12.0},
            "each needs 12 CPU, the Ray cluster has 0.5 of 12 CPU free, and no single node is large enough",
        ),
        ({"CPU": 0.0}, "each needs a node, the Ray cluster has 2 free"),
    ],
)
def test_a_shortage_names_needs_and_resources(needs: dict[str, float], says: str) -> None:
    assert describe_shortage(needs, [SMALL, LARGE], {"CPU": 0.5}) == says


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("The actor died.\n\tclass_name: Host\n", "The actor died."),
        (
            "Raised in creation:\n File x\nModuleNotFoundError: No module named 'uncork'",
            "ModuleNotFoundError: No module named 'uncork'",
        ),
        ("The actor died.\nThe actor died because its node has died. Node Id: 1", "its node has died"),
        ("", "ValueError"),
    ],
)
def test_an_error_is_shown_as_one_line(text: str, line: str) -> None:
    assert one_line(ValueError(text)) == line
