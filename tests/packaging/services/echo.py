from typing import Any

from uncork import Service, api
from uncork.adapters import Json


class Echo(Service):
    @api(input=Json())
    def echo(self, values: list[Any]) -> list[Any]:
        return values
