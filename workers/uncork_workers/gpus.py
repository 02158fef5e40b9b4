"""Which GPUs workers see."""

from __future__ import annotations

import os
import re

GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
_GPU_NAME = re.compile(r"[0-9]{1,4}|(GPU|MIG)-[0-9A-Za-z/-]+")


def read_gpus(text: str) -> list[str]:
    """The GPUs that ``text`` names: a list with commas, or how many of those there are to be seen here.

    Names are what ``CUDA_VISIBLE_DEVICES`` takes: numbers, or UUIDs such as ``GPU-8932f937``.

    Raises:
        ValueError: if it is neither; the message says what is accepted.
    """
    names = [name.strip() for name in text.split(",")]
    is_count = len(names) == 1
    if not is_count and not names[-1]:
        names.pop()
    for name in names:
        if not _GPU_NAME.fullmatch(name):
            raise ValueError(
                f"{text!r} names no GPUs: give a count such as 2, or numbers or UUIDs with commas between "
                "them such as 0,1 (one alone with a comma behind it: 1,)"
            )
    if is_count and text.strip().isdecimal():
        return _first_gpus(int(text))
    if len(set(names)) < len(names):
        raise ValueError(
            f"{text!r} names a GPU twice; workers share GPUs when there are more workers than GPUs"
        )
    return names


def _first_gpus(count: int) -> list[str]:
    visible = os.environ.get(GPU_VARIABLE)
    names = [str(number) for number in range(count)] if visible is None else visible.split(",")[:count]
    if count < 1:
        raise ValueError("the count of GPUs must be at least 1")
    if len(names) < count or not all(names):
        raise ValueError(f"there are no {count} GPUs here: {GPU_VARIABLE} is {visible!r}")
    return names
