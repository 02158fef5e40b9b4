"""Services made from model files, as a worker has them."""

from typing import Any

import msgspec
import pytest

from tests.workers.run_batch import batch_of
from uncork_workers.definition.loading import TargetError, load_service
from uncork_workers.definition.service import ApiDefinition, Service, find_apis
from uncork_workers.process.batches.execution import Executor


def served(target: str, *, trust_pickle: bool = False) -> tuple[Service, dict[str, ApiDefinition]]:
    """Return a service that has been set up, and its APIs by name."""
    made = load_service(target, trust_pickle=trust_pickle)()
    made.setup()
    return made, {api.name: api for api in find_apis(type(made))}


def run(
    target: str, *rows: object, api: str = "predict", trust_pickle: bool = False, **fields: Any
) -> list[Any]:
    """Run requests of one row each in one batch; return their results, or the texts of their errors."""
    made, _ = served(target, trust_pickle=trust_pickle)
    bodies = [msgspec.json.encode(row) for row in rows]
    reply, results = Executor(made).run(batch_of(api, *bodies, **fields), bodies)
    texts = [*map(bytes, results)]
    return [
        msgspec.json.decode(text)
        if status == 200
        else "".join(map(str, reply.reasons.get(at, [text.decode()])))
        for at, (text, status) in enumerate(zip(texts, reply.statuses, strict=True))
    ]


def refusal(target: str, *, trust_pickle: bool = False) -> str:
    """Return why a target cannot be served."""
    with pytest.raises(TargetError) as caught:
        load_service(target, trust_pickle=trust_pickle)
    return str(caught.value)
