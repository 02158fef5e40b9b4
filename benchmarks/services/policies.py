"""The sleeping model under every policy in one gateway, to compare policies in one process."""

from typing import Any

from benchmarks.services.sleep import Sleep
from uncork import api
from uncork.adapters import Json
from uncork_dispatcher.simulator import ALL_POLICIES


class Policies(Sleep):
    """Serves the model at /POLICY for each policy of the simulator."""


def _under(policy: str) -> Any:
    def handler(self: Sleep, rows: list[list[float]]) -> list[float]:
        """Return the sum of each row."""
        return self.predict(rows)

    handler.__name__ = policy
    return api(input=Json(), policy=policy, route=f"/{policy}")(handler)


for _policy in ALL_POLICIES:
    setattr(Policies, _policy, _under(_policy))
