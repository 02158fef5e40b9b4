"""APIs that group requests by a field, by a header and by a parameter; they hold, so that callers meet."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from uncork import Service, api, context
from uncork.adapters import DataFrame, Json, NdArray


class Groups(Service):
    """Says for each row what its group is; fails if a call has rows of several."""

    @api(input=Json(), group_by="language", policy="fixed:100", mb_max_latency=10_000)
    def predict(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        group = context().group
        for row, parameters in zip(rows, context().parameters, strict=True):
            assert row.get("language", parameters.get("language")) == group
            if row["n"] == -1:
                os._exit(1)
        return [{"n": row["n"], "group": group} for row in rows]

    @api(
        input=NdArray(dtype="int64", shape=(1,)),
        group_by=("header:x-lang", "parameter:beams"),
        policy="fixed:100",
        mb_max_latency=10_000,
    )
    def arrays(self, rows: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
        language, beams = context().group
        return [{"n": int(row[0]), "language": language or "none", "beams": beams} for row in rows]

    @api(input=DataFrame(), group_by="language", policy="fixed:100", mb_max_latency=10_000)
    def table(self, rows: Any) -> Any:
        assert set(rows["language"]) == {context().group}
        return rows[["n", "language"]]

    @api(input=Json(), policy="fixed:100", mb_max_latency=10_000)
    def parameters(self, rows: list[Any]) -> Sequence[Any]:
        return [{"own": dict(each).get("beams", "none")} for each in context().parameters]
