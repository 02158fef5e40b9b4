"""What Uncork says of mistakes in a service: what is wrong, and how to correct it.

The tests of the workers have more mistakes.
"""

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
from uncork.adapters import Json

"""
MISTAKES = [
    (
        "def setup(self): model = 5\n@api(input=Json())\ndef predict(self, rows): return [self.model]",
        "setup() does not set self.model; self has no attributes",
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
        "@api(input=Json())\ndef predict(self, rows): sum(rows)",
        "the handler must return an array, a table or a list with one result per row, got None; is a "
        "return statement missing?",
    ),
    (
        "@api(input=Json())\ndef predict(self, item): return item['x']",
        "a handler receives all rows of a batch (here 1 row), but item['x'] treats them as one row; "
        "iterate over them, as in [f(row) for row in rows]",
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
    except TargetError as error:
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
