"""``@api(coalesce=True)``: which APIs can run identical requests once."""

from typing import Any

import msgspec
import pytest

from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api, find_apis
from uncork_workers.wire.overrides import apply_overrides, for_all_apis
from uncork_workers.wire.schema import ApiDescription, DefinitionError, ServiceDescription


def described(**arguments: Any) -> ApiDescription:
    class Coalescing(Service):
        @api(input=Json(), **arguments)
        def predict(self, rows: Any) -> Any:
            return rows

    return find_apis(Coalescing)[0].description


def test_it_is_off_unless_asked_for() -> None:
    for arguments, coalesce in (({}, False), ({"coalesce": False}, False), ({"coalesce": True}, True)):
        sent = msgspec.msgpack.encode(described(**arguments))
        assert msgspec.msgpack.decode(sent, type=ApiDescription).coalesce is coalesce


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"coalesce": 1}, "coalesce must be True or False, got 1"),
        ({"coalesce": True, "idempotent": False}, "with idempotent=False each runs by itself; remove one"),
        ({"coalesce": True, "policy": "none"}, "with policy='none' each runs by itself; remove one"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        described(**arguments)


def test_streams_do_not_join() -> None:
    with pytest.raises(DefinitionError, match="coalesce does not apply to streaming"):

        class Streaming(Service):
            @api(input=Json(), policy="none", coalesce=True)
            def predict(self, rows: Any) -> Any:
                yield rows


@pytest.mark.parametrize(("argument", "value"), [("idempotent", False), ("policy", "none")])
def test_the_configuration_is_checked_too(argument: str, value: object) -> None:
    service = ServiceDescription(name="S", apis=[described(coalesce=True)])
    with pytest.raises(DefinitionError, match=f"{argument}={value!r} each runs by itself"):
        apply_overrides(service, for_all_apis({argument: value}))
