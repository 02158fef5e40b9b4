"""The encoder that peers serve, in Uncork."""

import sys
from pathlib import Path
from typing import Any

from uncork import Service, api
from uncork.adapters import Json

# The servers of the peers import peer_model from there, without Uncork.
sys.path.append(str(Path(__file__).parent.parent / "peers/servers"))


class Encoder(Service):
    """Runs the encoder on rows of tokens."""

    def setup(self) -> None:
        from peer_model import load  # type: ignore[import-not-found]

        self.run = load("encoder")

    @api(input=Json())
    def predict(self, rows: list[list[int]]) -> Any:
        """Return the index of the largest component of each row's mean state."""
        return self.run(rows)
