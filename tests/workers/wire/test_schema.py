"""The service description and its checks."""

import math
from typing import Any

import msgspec
import pytest

from uncork_workers.wire.frames import FrameDecoder, encode_frame
from uncork_workers.wire.messages import Batch
from uncork_workers.wire.schema import ApiDescription, ApiSettings
from uncork_workers.wire.values import RESERVED_PREFIXES, RESERVED_ROUTES, DefinitionError, check_route

NO_POSITIVE_NUMBERS = [0, -1, -0.5, math.nan, math.inf, -math.inf, "fast", "nan", None, True, [1]]
TOO_MANY = [2**31 + 1, 2**63, 2**64, 10**400]
NO_COUNTS = [0, -5, 1.0, 2.5, math.inf, True, "many", "1.5", None]
COSTS = "a number above 0 and at most 1000000000, 'bytes' or the name of a field"
NO_COSTS = [True, False, 0, -1, -0.5, math.nan, math.inf, 10**9 + 1, 10**400, "", [1], b"text"]
WRONG_SETTINGS: list[tuple[str, object, str]] = [
    *(("mb_max_latency", value, "a positive number of milliseconds") for value in NO_POSITIVE_NUMBERS),
    *(("timeout", value, "a positive number of seconds") for value in NO_POSITIVE_NUMBERS),
    *(("mb_max_batch_size", value, "an integer number of rows, at least 1") for value in NO_COUNTS),
    *(("mb_max_batch_bytes", value, "an integer number of bytes, at least 1") for value in NO_COUNTS),
    *(
        ("mb_max_latency", value, "a positive number of milliseconds and at most 1000000000000")
        for value in (10**12 + 1, 1e300, 2**64, 10**400)
    ),
    *(
        ("timeout", value, "a positive number of seconds and at most 1000000000")
        for value in (1e9 + 1, 1e300, *TOO_MANY)
    ),
    *(
        ("mb_max_batch_size", value, "an integer number of rows, at least 1 and at most 1000000000")
        for value in (10**9 + 1, *TOO_MANY)
    ),
    *(
        ("mb_max_batch_bytes", value, "an integer number of bytes, at least 1 and at most 2147483648")
        for value in TOO_MANY
    ),
    *(
        ("allowed_batch_sizes", value, "a list of increasing integers from 1 to 1000000000")
        for value in ((2**64,), (10**9 + 1,), (True,), (0,), (1.0,), ("1",), (2, 1), (1, 1), (), "12", 5)
    ),
    *(("policy", value, "a string") for value in (None, 5, ["cork"])),
    *(("idempotent", value, "True or False") for value in (None, 1, "yes")),
    *(("cost", value, COSTS) for value in NO_COSTS),
]


def refusal(**settings: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        ApiSettings(**settings).check("predict")
    return str(caught.value)


@pytest.mark.parametrize(
    ("argument", "value", "told"),
    [
        ("mb_max_latency", "300", "must be a positive number of milliseconds, got '300'; write 300"),
        ("timeout", " 2.5", "must be a positive number of seconds, got ' 2.5'; write 2.5"),
        (
            "mb_max_batch_bytes",
            "1e6",
            "must be an integer number of bytes, at least 1, got '1e6'; write 1000000",
        ),
    ],
)
def test_a_number_in_quotes_is_told_without_them(argument: str, value: str, told: str) -> None:
    assert refusal(**{argument: value}) == f"API 'predict': {argument} {told}"


LARGEST = ApiSettings(
    mb_max_latency=1e12,
    mb_max_batch_size=10**9,
    mb_max_batch_bytes=2**31,
    timeout=1e9,
    cost=10**9,
    allowed_batch_sizes=(1, 10**9),
    allowed_lengths=(1, 10**9),
)


def test_the_largest_settings_fit_into_a_frame() -> None:
    LARGEST.check("predict")
    batch = Batch(
        batch=1,
        api="predict",
        limit_rows=LARGEST.limit_rows,
        lengths=[1],
        rows=[1],
        allowed_batch_sizes=LARGEST.allowed_batch_sizes,
        allowed_lengths=LARGEST.allowed_lengths or (),
        timeout_s=LARGEST.timeout,
        left_s=[LARGEST.mb_max_latency / 1000],
    )

    assert [frame.message for frame in FrameDecoder().feed(encode_frame(batch, [b"1"]))] == [batch]


@pytest.mark.parametrize(("argument", "value", "accepted"), WRONG_SETTINGS)
def test_a_wrong_setting_is_refused(argument: str, value: object, accepted: str) -> None:
    assert refusal(**{argument: value}) == f"API 'predict': {argument} must be {accepted}, got {value!r}"


def test_the_smallest_settings_are_accepted() -> None:
    ApiSettings().check("predict")
    for cost in (0.001, "bytes", "any field"):
        ApiSettings(
            mb_max_latency=0.001,
            mb_max_batch_size=1,
            mb_max_batch_bytes=1,
            timeout=0.5,
            policy="any name, the gateway knows which there are",
            idempotent=False,
            cost=cost,
        ).check("predict")


@pytest.mark.parametrize("cost", ["text", "bytes", 2.5])
def test_only_rows_that_have_fields_are_weighed_by_one(cost: float | str) -> None:
    settings = ApiSettings(cost=cost)
    json, array = (
        ApiDescription(name="predict", route="/predict", input={"kind": kind}, settings=settings)
        for kind in ("json", "ndarray")
    )

    json.check()
    if cost != "text":
        array.check()
        return
    with pytest.raises(DefinitionError, match=r"^API 'predict': cost must be .* no fields, got 'text'$"):
        array.check()


OWN_ROUTES = [
    "/predict",
    "/a/b",
    "/v1",
    "/v1/embeddings",
    "/v1/modelsx",
    "/v3/x",
    "/dash",
    "/livez/x",
    "/a-b_c.d~e",
]


@pytest.mark.parametrize("route", OWN_ROUTES)
def test_a_path_of_its_own_is_a_route(route: str) -> None:
    check_route("predict", route)


@pytest.mark.parametrize("route", [*RESERVED_ROUTES, *(f"{prefix}x" for prefix in RESERVED_PREFIXES)])
def test_a_path_of_the_gateway_is_refused(route: str) -> None:
    with pytest.raises(DefinitionError, match=f"^API 'predict': route '{route}' is reserved .*/livez.*/v2/"):
        check_route("predict", route)


def test_a_description_survives_the_wire_with_defaults() -> None:
    short = msgspec.msgpack.encode({"name": "a", "route": "/a", "input": {"kind": "json"}})

    description = msgspec.msgpack.decode(short, type=ApiDescription)

    assert description == ApiDescription(name="a", route="/a", input={"kind": "json"})
    assert description.settings == ApiSettings()
