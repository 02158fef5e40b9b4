"""Triton's configuration of a model, for HTTP and gRPC."""

from typing import Any

from uncork_dispatcher.policies import make_policy
from uncork_dispatcher.policies.fixed import FixedPolicy
from uncork_dispatcher.policies.none import NonePolicy
from uncork_gateway.pages.models.inputs import inputs_of
from uncork_gateway.pages.models.metadata import PLATFORM, Model
from uncork_gateway.protocols.tensors import TensorSpec
from uncork_workers.wire.schema import ApiSettings


def config_of(model: Model) -> dict[str, Any]:
    """Return Triton's ``ModelConfig``, with shapes of one row and the outputs known so far.

    APIs that stream are "decoupled": they may send any number of messages per request.
    """
    settings = model.api.settings
    batching = _dynamic_batching(settings)
    return {
        "name": model.name,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "version_policy": {"specific": {"versions": [int(model.version)]}},
        "max_batch_size": _most_rows(settings),
        # Clients read the format of each input; Uncork does not know which arrays are images.
        "input": [{**_tensor(spec), "format": "FORMAT_NONE"} for spec in inputs_of(model.api)],
        "output": [_tensor(spec) for spec in model.outputs.known()],
        **({} if batching is None else {"dynamic_batching": batching}),
        **({"model_transaction_policy": {"decoupled": True}} if model.api.streams else {}),
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    kind = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": list(spec.shape)}


def _most_rows(settings: ApiSettings) -> int:
    """Return the most rows in a batch; where rows have costs, the most rows of cost 1."""
    cost = settings.cost if isinstance(settings.cost, int | float) else 1
    most = max(1, int(settings.limit_rows // cost))
    return min(most, *(settings.allowed_batch_sizes or (most,))[-1:])


def _dynamic_batching(settings: ApiSettings) -> dict[str, Any] | None:
    """Return Triton's description of batching; None if requests are not batched.

    Only the policy ``fixed`` sets a preferred size and a delay; other policies hold at most until the goal.
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
