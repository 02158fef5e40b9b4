"""Mutated input raises nothing; scripts/fuzz streams tries more of it."""

import pytest

from tests.gateway.grpc.http2.mutations import outcomes

pytestmark = pytest.mark.virtual_time


async def test_mutated_input_ends_in_goaway_or_goes_on() -> None:
    found = await outcomes(range(400), seed=1)
    assert found.total() == 400
    assert found["open"] > 40
    assert found["PROTOCOL_ERROR"] > 40
    assert {"COMPRESSION_ERROR", "FRAME_SIZE_ERROR", "FLOW_CONTROL_ERROR"} <= set(found)
