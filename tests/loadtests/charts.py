"""The charts of a written page, as plotly gets them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple


class Chart(NamedTuple):
    traces: list[dict[str, Any]]
    layout: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return [trace["name"] for trace in self.traces]


def charts(page: Path) -> list[Chart]:
    text, decoder = page.read_text(), json.JSONDecoder()
    found = []
    for call in re.finditer(r'Plotly\.newPlot\(\s*"[-\w]+",\s*', text):
        traces, end = decoder.raw_decode(text, call.end())
        layout, _ = decoder.raw_decode(text, text.index("{", end))
        found.append(Chart(traces, layout))
    return found
