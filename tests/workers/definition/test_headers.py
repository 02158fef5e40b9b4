"""``@api(headers=...)``: the headers that a handler may read."""

from typing import Any

import pytest

from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api, find_apis
from uncork_workers.wire.schema import ApiDescription, DefinitionError


def described(headers: Any) -> ApiDescription:
    class Reading(Service):
        @api(input=Json(), headers=headers)
        def predict(self, rows: list[Any]) -> list[Any]:
            return rows

    return find_apis(Reading)[0].description


def test_names_are_in_lower_case() -> None:
    assert described(["X-Tenant", "x-request-id"]).headers == ("x-tenant", "x-request-id")


@pytest.mark.parametrize("name", ["Authorization", "cookie", "Proxy-Authorization", "X-Api-Key"])
def test_handlers_get_no_credentials(name: str) -> None:
    with pytest.raises(DefinitionError, match=f"^API 'predict': headers names '{name}', which may hold"):
        described(("x-tenant", name))


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ("x-tenant", r"got 'x-tenant'; write headers=\('x-tenant',\)$"),
        (("x tenant",), r"got \('x tenant',\)$"),
        ((7,), r"got \(7,\)$"),
        (None, "got None$"),
        (("x-a", "X-A"), "names 'X-A' twice; remove one$"),
    ],
)
def test_anything_else_is_refused(headers: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=f"^API 'predict': headers .*{says}"):
        described(headers)
