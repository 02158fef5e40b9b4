"""Notices of changes in readiness: when they are sent, and to whom."""

from __future__ import annotations

from tests.gateway.fake_worker import json_api, service
from tests.gateway.gateway_stage import GatewayStage
from tests.gateway.running import turns
from uncork_gateway.readiness import Readiness
from uncork_workers.wire.messages import Leaving


async def test_changes_of_one_turn_are_one_notice() -> None:
    readiness, notices = Readiness(), list[str]()
    readiness.subscribe(lambda: notices.append("first"))
    end = readiness.subscribe(lambda: notices.append("second"))

    readiness.may_have_changed()
    readiness.may_have_changed()
    assert notices == []
    await turns()
    assert notices == ["first", "second"]

    end()
    readiness.may_have_changed()
    await turns()
    assert notices == ["first", "second", "first"]
    end()


async def test_a_subscriber_may_end_its_subscription_when_notified() -> None:
    readiness, notices = Readiness(), list[int]()

    def once() -> None:
        """Note the notice and end the subscription."""
        notices.append(1)
        end()

    end = readiness.subscribe(once)
    for _ in range(2):
        readiness.may_have_changed()
        await turns()

    assert notices == [1]


async def test_workers_models_and_a_drain_change_the_readiness(on: GatewayStage) -> None:
    """Each notice finds the new state."""
    found: list[tuple[bool, list[str]]] = []
    front_end = on.gateway.front_end
    front_end.readiness.subscribe(
        lambda: found.append((not front_end.unready(), sorted(on.gateway.catalogue.models)))
    )

    async def last() -> tuple[bool, list[str]]:
        """Wait for the next notice, and return the state then."""
        while not found:
            await turns(1)
        state = found[-1]
        found.clear()
        return state

    worker = await on.worker(index=0)
    assert await last() == (True, ["fake", "fake.echo"])
    worker.close()
    assert await last() == (False, ["fake", "fake.echo"])
    worker = await on.worker(index=0)
    assert await last() == (True, ["fake", "fake.echo"])
    on.service.events.serve(service(json_api("other")))
    assert await last() == (True, ["fake", "fake.other"])
    worker.send(Leaving())
    assert await last() == (False, ["fake", "fake.other"])
    await on.worker(index=1, serves=service(json_api("other")))
    assert (await last())[0]
    front_end.retire()
    assert not (await last())[0]
