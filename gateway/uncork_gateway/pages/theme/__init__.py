"""The colors that all pages share, and the reader's choice between light and dark."""

from pathlib import Path

FILES = {name: Path(__file__).parent / name for name in ("theme.css", "theme.js")}
"""Files by name. A page loads both, and has a ``select`` with the id ``theme``."""
