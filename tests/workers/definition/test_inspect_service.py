"""Descriptions of services that a process of its own makes."""

import sys
from pathlib import Path

from uncork_workers.definition.inspect_service import inspect_service

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
