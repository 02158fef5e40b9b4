"""The page on services: its code runs, and its messages are those that people get."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from uncork.testing import client
from uncork_workers.definition import hints
from uncork_workers.definition.loading import TargetError, load_service

PAGE = Path(__file__).parent.parent / "docs/guides/services.md"
TEXT = PAGE.read_text()
SAID = re.findall(r"^\|.*\| `(.*)` \|$", TEXT.partition("## Common mistakes")[2], re.MULTILINE)

HEAD = """
from uncork import Service, api
from uncork.adapters import Json, NdArray

class Tensor:
    def detach(self): ...
    def numpy(self): ...

class coroutine:  # as those of Python, which warn at some later time that nobody has awaited them
    def __await__(self): ...

"""
USES_MODEL = """
@api(input=Json())
def predict(self, rows): return [self.model for _ in rows]
"""
MISTAKES = [
    "def setup(self): model = 5" + USES_MODEL,
    "def set_up(self): self.model = 5" + USES_MODEL,
    "async def setup(self): self.model = 5" + USES_MODEL,
    "def __init__(self, path): self.model = path" + USES_MODEL,
    "@api(input=Json())\ndef predict(rows): return rows",
    "@api(Json())\ndef predict(self, rows): return rows",
    "@api(input=Json)\ndef predict(self, rows): return rows",
    "@api(input=Json(), max_batch_size=9)\ndef predict(self, rows): return rows",
    "@api(input=NdArray(shape=64))\ndef predict(self, rows): return rows",
    "@api(input=Json(), mb_max_latency=0.3)\ndef predict(self, rows): return rows",
    "@api(input=Json())\ndef predict(self, rows): sum(rows)",
    "@api(input=Json())\ndef predict(self, rows): return sum(rows)",
    "@api(input=Json())\ndef predict(self, rows): return [sum(rows)]",
    "@api(input=Json())\ndef predict(self, item): return item['x']",
    "@api(input=Json())\ndef predict(self, rows): return [0.25, 0.75]",
    "@api(input=Json())\ndef predict(self, rows): return [{'model': self} for _ in rows]",
    "@api(input=Json())\ndef predict(self, rows): return [Tensor() for _ in rows]",
    "@api(input=Json())\ndef predict(self, rows): return coroutine()",
    "@api(input=Json())\nasync def predict(self, rows): return rows",
    "import no_such_package",
]
TARGETS = ["service.py", "service.py:s"]
MISTAKES_AND_WORDS = list(zip(MISTAKES, SAID[: len(MISTAKES)], strict=True))
TARGETS_AND_WORDS = list(zip(TARGETS, SAID[len(MISTAKES) :], strict=True))


def all_of(error: BaseException) -> str:
    """An exception and its notes."""
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


@pytest.mark.parametrize(("body", "said"), MISTAKES_AND_WORDS)
def test_the_page_says_what_uncork_says(
    body: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of each mistake, in the order of the table; what differs from run to run is an ellipsis there."""
    monkeypatch.setattr(hints, "_LONG_S", 0)  # the handler that blocks does it shortly
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / f"mistake_{abs(hash(body))}.py"
    file.write_text(f"{HEAD}class S(Service):\n{textwrap.indent(body, '    ')}\n")

    found = what_is_said(file, caplog)

    assert re.search(re.escape(said).replace("…", ".*"), found.replace("\\'", "'")), found


@pytest.mark.parametrize(("target", "said"), TARGETS_AND_WORDS)
def test_the_page_says_what_is_said_of_targets(
    target: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are what is typed behind ``uncork serve``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service.py").write_text("from uncork import Service\nclass S(Service): ...\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(TargetError) as caught:
        load_service(target)

    assert str(caught.value) == said
