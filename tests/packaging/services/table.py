from typing import Any

from uncork import Service, api
from uncork.adapters import DataFrame


class Table(Service):
    @api(input=DataFrame(columns=["a", "b"]))
    def total(self, frame: Any) -> Any:
        return frame.a + frame.b
