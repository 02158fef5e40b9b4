"""The configuration of a model as Triton has it: what is in force, in the JSON of its ``ModelConfig``."""

from __future__ import annotations

from typing import Any

from uncork_dispatcher.policies import make_policy
from uncork_dispatcher.policies.fixed import FixedPolicy
from uncork_dispatcher.policies.none import NonePolicy
from uncork_gateway.dialects.v2 import VERSION
from uncork_gateway.pages.models.inputs import inputs_of
from uncork_gateway.pages.models.metadata import PLATFORM, Model
from uncork_gateway.protocols.tensors import TensorSpec
from uncork_workers.wire.schema import ApiSettings


def config_of(model: Model) -> dict[str, Any]:
    """Return the configuration of a model under the settings in force.

    Shapes are those of a row. Outputs are those known so far.
    """
    settings = model.api.settings
    batching = _dynamic_batching(settings)
    return {
        "name": model.name,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "version_policy": {"specific": {"versions": [int(VERSION)]}},
        "max_batch_size": _most_rows(settings),
        "input": [_tensor(spec) for spec in inputs_of(model.api)],
        "output": [_tensor(spec) for spec in model.outputs.known()],
        **({} if batching is None else {"dynamic_batching": batching}),
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    kind = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": list(spec.shape)}


def _most_rows(settings: ApiSettings) -> int:
    """The most rows in a batch. Where each row has a cost of its own it is that of rows that cost 1."""
    cost = settings.cost if isinstance(settings.cost, int | float) else 1
    return max(1, int(settings.limit_rows // cost))


def _dynamic_batching(settings: ApiSettings) -> dict[str, Any] | None:
    """How batches are made; None if each request is one.

    A preferred size is released at once. ``fixed`` waits for its time; other policies decide how long, and
    none waits beyond the goal.
    """
    policy = make_policy(settings.policy, limit_rows=settings.limit_rows)
    if isinstance(policy, NonePolicy):
        return None
    longest_s, preferred = settings.mb_max_latency / 1000, []
    if isinstance(policy, FixedPolicy):
        longest_s = min(longest_s, policy.wait_s)
        if settings.cost is None and policy.limit_rows < settings.limit_rows:
            preferred = [policy.limit_rows]
    return {"preferred_batch_size": preferred, "max_queue_delay_microseconds": round(longest_s * 1e6)}
