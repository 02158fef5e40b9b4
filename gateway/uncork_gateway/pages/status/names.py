"""The names of a front end's parts and settings, in texts for people."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """The names of a front end's parts and settings.

    Attributes:
        part, parts: what runs one batch at a time.
        none_ready: the clause for the case that none could run a batch.
        handler: the code that answers; ``log``: the log with its errors; ``machine``: where it runs.
        lost: the clause for a batch that was lost.
        apis: what clients call.
        option: the option for the number of parts.
        cap, cap_bytes, goal, timeout, window: the settings for the largest batch in rows and in bytes, the
            goal, the longest batch and the longest hold; None if there is no such setting.
        has_cost: whether there is a setting for the cost of rows.
    """

    part: str
    parts: str
    none_ready: str
    handler: str
    log: str
    machine: str
    lost: str
    apis: str
    option: str
    cap: str
    cap_bytes: str | None
    goal: str
    timeout: str
    window: str | None
    has_cost: bool


SERVICE = Names(
    part="worker",
    parts="workers",
    none_ready="no worker was ready",
    handler="the handler",
    log="the log",
    machine="this machine",
    lost="the worker died while running the batch",
    apis="APIs",
    option="--workers",
    cap="mb_max_batch_size",
    cap_bytes="mb_max_batch_bytes",
    goal="mb_max_latency",
    timeout="the API's timeout",
    window=None,
    has_cost=True,
)
PROXY = Names(
    part="concurrent call",
    parts="concurrent calls",
    none_ready="no server was healthy",
    handler="the model server",
    log="the model server's log",
    machine="the model server's machine",
    lost="the connection to the model server was lost",
    apis="models",
    option="--concurrency",
    cap="--max-batch-size",
    cap_bytes=None,
    goal="--goal-ms",
    timeout="--timeout",
    window="--max-latency",
    has_cost=False,
)
