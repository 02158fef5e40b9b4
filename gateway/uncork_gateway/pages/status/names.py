"""The words for a front end's parts and settings, in texts for people."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """The words for a front end's parts and settings; they differ between a service and a proxy.

    Attributes:
        part, parts: a backend that runs one batch at a time, such as "worker".
        none_ready: the clause that says that no backend was ready.
        handler: the code that executes requests; ``log``: the log with its errors; ``machine``: its machine.
        lost: the clause that says that a batch was lost.
        apis: the word for the things that clients call, such as "APIs".
        option: the option for the number of parts.
        cap, cap_bytes, goal, timeout, window: the settings for the largest batch in rows and bytes, the goal,
            the longest batch and the longest hold; None without such a setting.
        has_cost: True if rows can have a cost.
        reserves: True if an API can reserve parts.
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
    reserves: bool


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
    reserves=True,
)
OWN_SLOTS = replace(SERVICE, part="slot", parts="slots", option="concurrency of this API", reserves=False)
"""The words for an API with ``concurrency``."""
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
    reserves=False,
)
