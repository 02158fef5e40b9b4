"""What Uncork says of mistakes in a service: what is wrong, and how to correct it."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from uncork.testing import client
from uncork_workers.definition import hints
from uncork_workers.definition.loading import TargetError, load_service

HEAD = """
from uncork import Service, api
from uncork.adapters import Json, NdArray

class coroutine:  # as those of Python, which warn at some later time that nobody has awaited them
    def __await__(self): ...

"""
USES_MODEL = """
@api(input=Json())
def predict(self, rows): return [self.model for _ in rows]
"""
MISTAKES = [
    (
        "def setup(self): model = 5" + USES_MODEL,
        "setup() does not set self.model; self has no attributes",
    ),
    (
        "def set_up(self): self.model = 5" + USES_MODEL,
        "self.model is not set: set_up() is never called; rename it to setup",
    ),
    (
        "async def setup(self): self.model = 5" + USES_MODEL,
        "service S: setup must be a plain method, not async; run async code in it with asyncio.run(...)",
    ),
    (
        "def __init__(self, path): self.model = path" + USES_MODEL,
        "service S: __init__ must not require arguments, but requires path; initialize the service "
        "in setup(self)",
    ),
    (
        "@api(input=Json())\ndef predict(rows): return rows",
        "API 'predict': the handler is called with self and the rows of the batch; write def "
        "predict(self, rows), not def predict(rows)",
    ),
    (
        "@api(Json())\ndef predict(self, rows): return rows",
        "write @api(input=Json()), or another adapter, above the method; pass all arguments by keyword",
    ),
    (
        "@api(input=Json)\ndef predict(self, rows): return rows",
        "input must be an adapter such as Json(), got …; write input=Json()",
    ),
    (
        "@api(input=Json(), max_batch_size=9)\ndef predict(self, rows): return rows",
        "did you mean mb_max_batch_size?",
    ),
    (
        "@api(input=NdArray(shape=64))\ndef predict(self, rows): return rows",
        "NdArray: shape must be a tuple of lengths, each at least 1 or None for any length, got 64; "
        "write shape=(64,)",
    ),
    (
        "@api(input=Json(), mb_max_latency=0.3)\ndef predict(self, rows): return rows",
        "API 'predict': mb_max_latency is in milliseconds, and 0.3 ms is too short for most models; "
        "for 0.3 seconds, write 300",
    ),
    (
        "@api(input=Json())\ndef predict(self, rows): sum(rows)",
        "the handler must return an array, a table or a list with one result per row, got None; is a "
        "return statement missing?",
    ),
    (
        "@api(input=Json())\ndef predict(self, rows): return sum(rows)",
        "got a single int; it was called with 3 rows and must return one result for each",
    ),
    (
        "@api(input=Json())\ndef predict(self, rows): return [sum(rows)]",
        "the handler returned 1 result for 3 rows; it receives all rows of a batch and must return "
        "one result per row",
    ),
    (
        "@api(input=Json())\ndef predict(self, item): return item['x']",
        "a handler receives all rows of a batch (here 1 row), but item['x'] treats them as one row; "
        "iterate over them, as in [f(row) for row in rows]",
    ),
    (
        "@api(input=Json())\ndef predict(self, rows): return [0.25, 0.75]",
        "the handler returned 2 results for 1 row; to return several values for one row, nest them "
        "in a list: [results]",
    ),
    (
        "@api(input=Json())\ndef predict(self, rows): return [{'model': self} for _ in rows]",
        "result 0 at ['model'] cannot be written as JSON: S is not supported; use numbers, text, …",
    ),
    (
        "@api(input=Json())\ndef predict(self, rows): return coroutine()",
        "got coroutine; write async def, and await the call",
    ),
    (
        "@api(input=Json())\nasync def predict(self, rows): return rows",
        "API predict: the async handler ran for … s without awaiting anything, which blocks its "
        "event loop; await asyncio.to_thread(...), or write def instead of async def",
    ),
    (
        "import no_such_package",
        "install it for the Python that runs the workers: … -m pip install no_such_package",
    ),
]
TARGETS = [
    ("service.py", "'service.py' is not of the form MODULE:SERVICE or FILE.py:SERVICE; write service.py:S"),
    ("service.py:s", "service.py has no 's'; did you mean S?"),
]


def all_of(error: BaseException) -> str:
    return "\n".join((str(error), *getattr(error, "__notes__", ())))


def what_is_said(file: Path, caplog: pytest.LogCaptureFixture) -> str:
    """All that is said of a service while it is loaded, and answers three clients and one."""
    try:
        service = load_service(f"{file}:S")
    except (TargetError, UserWarning) as error:
        return str(error)
    with client(service, raise_handler_errors=False) as c:
        c.post_all("/predict", json=[1, 2, 3])
        c.post("/predict", json=4)
    errors = [record.exc_info[1] for record in caplog.records if record.exc_info]
    messages = [record.getMessage() for record in caplog.records]
    return "\n".join([*messages, *(all_of(error) for error in errors if error is not None)])


@pytest.mark.parametrize(("body", "said"), MISTAKES)
def test_mistakes_in_a_service_are_explained(
    body: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What differs from run to run is an ellipsis."""
    monkeypatch.setattr(hints, "_LONG_S", 0)  # the handler that blocks does it shortly
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / f"mistake_{abs(hash(body))}.py"
    file.write_text(f"{HEAD}class S(Service):\n{textwrap.indent(body, '    ')}\n")

    found = what_is_said(file, caplog)

    assert re.search(re.escape(said).replace("…", ".*"), found.replace("\\'", "'")), found


@pytest.mark.parametrize(("target", "said"), TARGETS)
def test_mistakes_in_a_target_are_explained(
    target: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are what is typed behind ``uncork serve``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service.py").write_text("from uncork import Service\nclass S(Service): ...\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(TargetError) as caught:
        load_service(target)

    assert str(caught.value) == said
