"""Descriptions of services that a process of its own makes."""

import sys
from pathlib import Path

import pytest

from uncork_workers.definition.inspect_service import inspect_service
from uncork_workers.definition.loading import TargetError

SERVICE = """
import numpy as np
from uncork import Service, api
from uncork.adapters import Json

class Echo(Service):
    @api(input=Json(), mb_max_latency=np.float64(20))
    def predict(self, rows):
        return rows
"""


def test_numbers_of_numpy_are_described(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(SERVICE)

    found = inspect_service(
        f"{tmp_path}/service.py:Echo", trust_pickle=False, python=sys.executable, environment={}
    )

    assert found.apis[0].settings.mb_max_latency == 20


def test_a_reason_may_name_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    target = f"{tmp_path}/caf\udce9.py:Echo"

    with pytest.raises(TargetError, match=r"caf\\udce9"):
        inspect_service(target, trust_pickle=False, python=sys.executable, environment={})
