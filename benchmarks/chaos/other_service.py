"""A second service in the gateway, which comes and goes while the first is under load."""

import asyncio
import time
from random import Random

import msgspec

from benchmarks.chaos.faults import SERVICES
from benchmarks.chaos.processes import reload_by_command
from benchmarks.chaos.questions import Question, Row, post, right_answer
from benchmarks.chaos.stage import Stage
from benchmarks.chaos.streams import connected, read_reply

OTHER = "other"
_QUESTIONS = 10
# Its only worker may be killed or stopped by another fault.
_PRESENT = frozenset({200, 503, 504})
_GONE = frozenset({404})
# New workers may be killed before they are ready.
_ATTEMPTS = 20
_TURN_S = 60.0
_busy = asyncio.Lock()


def configuration(target: str, *, workers: int, other: str = "") -> str:
    """Return the configuration with the service under test, and perhaps another with these settings."""
    tables = [f'[services.chaos]\ntarget = "{target}"\nworkers = {workers}']
    if other:
        tables.append(f'[services.{OTHER}]\ntarget = "{target}"\nown-routes = false\n{other}')
    return "\n".join(tables) + "\n"


async def come_and_go(stage: Stage, random: Random) -> None:
    """Add, replace, scale, change and remove another service; no request to the first may be affected."""
    config = stage.gateway.config
    assert config is not None
    if _busy.locked():  # on a starved machine, the turns would queue
        return
    async with _busy:
        window = stage.ledger.strike(SERVICES, time.monotonic())
        before = config.read_text()
        target = before.partition('target = "')[2].partition('"')[0]
        settings = [
            "workers = 1",
            f'workers = 2\nmb-max-latency = {random.randint(100, 2000)}\npolicy = "fixed:2"',
            "workers = 1\nmax-batches-per-worker = 50",
        ]
        for one in settings:
            config.write_text(configuration(target, workers=stage.gateway.size, other=one))
            if await _reloaded(stage):
                await _ask(stage, _PRESENT)
        config.write_text(config.read_text() + "workers = 'many'\n")
        await reload_by_command(stage, SERVICES, codes={1})
        config.write_text(before)
        if await _reloaded(stage):
            await _ask(stage, _GONE)
        window.close(time.monotonic())


async def _reloaded(stage: Stage) -> bool:
    """Reload until the settings are in use; complain if that does not happen."""
    for _ in range(_ATTEMPTS):
        code = await reload_by_command(stage, SERVICES, codes={0, 1})
        if code == 0:
            return True
        if code is None:
            return False
        await asyncio.sleep(1.0)
    stage.ledger.complain(SERVICES.name, f"{_ATTEMPTS} reloads in a row failed")
    return False


async def _ask(stage: Stage, allowed: frozenset[int]) -> None:
    """Ask the other service, one request after the other."""
    try:
        async with asyncio.timeout(_TURN_S), connected(stage.gateway.port) as (reader, writer):
            for _ in range(_QUESTIONS):
                question = _question(next(stage.numbers))
                writer.write(question.request)
                reply = await read_reply(reader)
                if reply is None or reply.status not in allowed:
                    said = "no answer" if reply is None else f"{reply.status} {reply.body[:200]!r}"
                    stage.ledger.complain(SERVICES.name, f"the other service: {said}")
                    return
                if reply.status == 200 and not question.is_answered_by(reply.body):
                    stage.ledger.complain(SERVICES.name, f"the other service: wrong answer {reply.body!r}")
    except TimeoutError:
        stage.ledger.complain(SERVICES.name, f"the other service did not answer within {_TURN_S:g} s")


def _question(number: int) -> Question:
    row = Row(number=number)
    return Question(number, post(f"/{OTHER}/predict", msgspec.json.encode(row)), (right_answer(row),))
