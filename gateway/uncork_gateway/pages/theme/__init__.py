"""The colors of pages, and the reader's choice between light and dark, which all pages share."""

from pathlib import Path

FILES = {name: Path(__file__).parent / name for name in ("theme.css", "theme.js")}
"""Files by name. A page loads both, and has a ``select`` with the id ``theme``."""
