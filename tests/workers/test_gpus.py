"""What ``--gpus`` takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_workers.gpus import read_gpus


@pytest.mark.parametrize(
    ("text", "visible", "gpus"),
    [
        ("1", None, ["0"]),
        ("3", None, ["0", "1", "2"]),
        ("2", "4,5,6", ["4", "5"]),
        ("0,1", "4,5,6", ["0", "1"]),
        ("3,", None, ["3"]),
        ("2, 0", None, ["2", "0"]),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", None, ["GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"]),
        ("MIG-GPU-8932f937/1/0,MIG-ab12", None, ["MIG-GPU-8932f937/1/0", "MIG-ab12"]),
    ],
)
def test_gpus_are_a_count_or_names(
    monkeypatch: pytest.MonkeyPatch, text: str, visible: str | None, gpus: list[str]
) -> None:
    """A count is of those that can be seen here; one number with a comma behind it is a name."""
    set_visible(monkeypatch, visible)

    assert read_gpus(text) == gpus


@pytest.mark.parametrize(
    ("text", "visible", "says"),
    [
        ("", None, "'' names no GPUs: give a count such as 2, or numbers or UUIDs"),
        (",", None, "',' names no GPUs"),
        ("0,,1", None, "'0,,1' names no GPUs"),
        ("all", None, "'all' names no GPUs"),
        ("-1", None, "'-1' names no GPUs"),
        ("0,x", None, "'0,x' names no GPUs"),
        ("10000", None, "'10000' names no GPUs"),
        ("0", None, "the count of GPUs must be at least 1"),
        ("1,1", None, "'1,1' names a GPU twice"),
        ("3", "4,5", "there are no 3 GPUs here: CUDA_VISIBLE_DEVICES is '4,5'"),
        ("1", "", "there are no 1 GPUs here: CUDA_VISIBLE_DEVICES is ''"),
    ],
)
def test_other_gpus_are_refused(
    monkeypatch: pytest.MonkeyPatch, text: str, visible: str | None, says: str
) -> None:
    """The message says what is accepted."""
    set_visible(monkeypatch, visible)

    with pytest.raises(ValueError, match=says):
        read_gpus(text)


@given(st.text())
def test_any_text_is_gpus_or_an_error(text: str) -> None:
    """And what they are is what a worker can be given."""
    try:
        gpus = read_gpus(text[:3])
    except ValueError:
        return
    assert gpus
    assert all(name and "," not in name for name in gpus)


def set_visible(monkeypatch: pytest.MonkeyPatch, visible: str | None) -> None:
    """Have these GPUs be visible; None for all."""
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
