"""Numbers of things in messages."""

from collections.abc import Callable

import pytest

from uncork_dispatcher import wording
from uncork_workers import plural as of_workers


@pytest.mark.parametrize("plural", [wording.plural, of_workers.plural])
def test_one_is_singular(plural: Callable[..., str]) -> None:
    assert [plural(count, "row") for count in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
    assert [plural(count, "batch", "batches") for count in (1, 21)] == ["1 batch", "21 batches"]
