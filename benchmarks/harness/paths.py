"""Folders of the repository that benchmarks read and write."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SERVICES = ROOT / "benchmarks" / "services"
CACHE = ROOT / ".peers"
"""Virtual environments of other projects."""
