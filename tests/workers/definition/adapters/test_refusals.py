"""Messages to clients whose rows are refused by the adapters: the cases are in ``refusals.txt``.

Each is an expression with the names of this module, and the message.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.expected import check_messages
from tests.workers.definition.adapters.raw_stage import form, merge, raw
from tests.workers.definition.adapters.test_dataframe import DEEP
from tests.workers.definition.adapters.test_file import BOUNDARY, PAIR, WHOLE
from tests.workers.definition.models.test_tensors import ADAPTER, COLUMNS, IDS, TEXTS
from uncork_workers.definition import adapters
from uncork_workers.definition.adapters import Adapter, InvalidInput
from uncork_workers.wire.forms import ColumnsForm, ListForm, TensorForm
from uncork_workers.wire.tensors import join_columns

FORMS = {"ListForm": ListForm, "form": form, "merge": merge, "raw": raw}
BODIES = {"BOUNDARY": BOUNDARY, "COLUMNS": COLUMNS, "DEEP": DEEP, "IDS": IDS, "PAIR": PAIR, "TEXTS": TEXTS}
NAMES = {**vars(adapters), **FORMS, **BODIES, "WHOLE": WHOLE}
FINE = raw(b"fine", "text/plain")


def tensor(adapter: Adapter, of: TensorForm, body: bytes) -> None:
    adapter.merge_tensors([body], of, [1])


def columns(of: Any, data: list[bytes]) -> None:
    ADAPTER.merge_columns([join_columns(data)], ColumnsForm(of), [2])


def said(expression: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        eval(expression, {**NAMES, **globals()})
    return " ".join(str(caught.value).split())


def test_what_is_refused() -> None:
    check_messages(Path(__file__).with_name("refusals.txt"), said)
