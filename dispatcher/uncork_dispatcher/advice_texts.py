"""The texts of all advice. ``advice.py`` says how their figures are formatted."""

# Clauses that several templates share. The unit is "row" or "unit of cost", the part "worker" or the like.
_LOAD = "{rate:~{unit}}/s arrived, and {workers:{part}} can answer {about} {capacity:~{unit}}/s"
_SHARED = f"{_LOAD}, but other {{apis}} take {{others:percent}} of the time"
_ADD = "add {more:{part}} ({option})"
_WAITS = "on average, a request waits {queue_s:ms} and runs {run_s:ms}"
_FAILED = "{failed:exact} of {answered:request} got {status}"
_TOO_SLOW = (
    "the smallest batch, of {rows:~{unit}}, takes {needed_s:ms}, longer than the goal of {goal_s:exact_ms}"
)
_NEIGHBOR = (
    "a batch of {other} takes {other_s:ms} on the same {parts}, so requests that wait for it miss the goal "
    "of {goal_s:exact_ms}"
)
_LITTLE_GAIN = (
    "batches of {rows:~{unit}} have only {gain:times} the throughput of single requests",
    "check whether the handler loops over rows instead of processing all at once",
)
_ABOVE_GOAL = (
    "a full batch of {cap:{unit}} takes {full_s:ms}, but the goal of {goal_s:exact_ms} allows only {fitting}"
)
_FULL_BATCH = "a full batch of {cap:{unit}} needs {needs:MiB} ({base:MiB}, plus {each:MiB} each), "
_RAISE_QUEUE = "raise --max-queue-rows ({queue_rows:exact}) or --max-queue-bytes ({queue_bytes:MiB})"
_QUEUE = "the queue is limited to {queue:{unit}}, but a batch may have {batch:exact}"
_WORKERS = "{workers} workers{shares} share {cores:core}, and the gateway needs one too"
_MEMORY = "the {free:MiB} of free memory have no room for {workers:worker}{shares}"
_LENGTHS = (
    "a batch of {requests} bodies takes {short_s:ms} at {short:byte} each, {long_s:ms} at {long:byte} each, "
    "and {mixed_s:ms} if only one has {long:byte}, "
)

_TOO_LARGE = (
    "batches of more than {fits:{unit}} do not fit into the memory of a {part}",
    "set {setting} to {to}, or give the model more memory",
)

TEMPLATES: dict[str, tuple[str, str]] = {
    # A running gateway or proxy.
    "no_worker": ("{reason}", "see {log}"),
    "errors/raised": (
        f"{_FAILED} because the handler raised; the last exception is {{error}}{{place}}",
        "fix the handler: {log} has the traceback under error id {error_id}",
    ),
    "errors/timed_out": (
        f"{_FAILED} because the batch exceeded its timeout",
        "find out why batches take so long, or raise {timeout}",
    ),
    "errors/lost": (f"{_FAILED} because {{lost}}", "see {log}"),
    "errors": (f"{_FAILED} from {{handler}}", "see {log}"),
    "goal_out_of_reach": (_TOO_SLOW, "raise {setting}, or make the model faster"),
    "memory_limit": _TOO_LARGE,
    "raise_cap": (
        "{share:percent} of the batches reach the limit of {cap:{unit}}, and larger ones would answer more",
        "raise {setting}, for example to {to}",
    ),
    "raise_batch_bytes": (
        "{share:percent} of the batches are full at {rows:~{unit}} of {cap:exact}, because of their bytes",
        "raise {setting} (now {now:MiB})",
    ),
    "raise_goal": (
        "behind another batch, one that meets the goal of {goal_s:exact_ms} has at most {rows:~{unit}}, and "
        "larger ones would answer more",
        "raise {setting} if your clients can wait longer",
    ),
    "bulk_without_room": (
        "queued bulk gets only 5 % of the workers' time, because the goal of {goal_s:exact_ms} leaves no "
        "room for it: the fixed part of a batch takes {fixed_s:ms}",
        "raise {setting} to {to_s:ms} if clients can wait that long, or serve bulk from other workers",
    ),
    "policy_none": ("policy none runs each request alone", "set policy cork to run requests in batches"),
    "split_requests": (
        "{share:percent} of the work is padding, because requests of about {rows:~row} mix different lengths",
        "have clients send rows of similar length together, or one row per request",
    ),
    "add_workers": (_LOAD, _ADD),
    "add_workers/shared": (_SHARED, _ADD),
    "add_workers/waiting": (f"{_WAITS}, with {{workers:{{part}}}}", _ADD),
    "add_workers/refused": (f"the gateway refused {{refused:exact}} of {{answered:request}}: {_LOAD}", _ADD),
    "add_workers/bursts": (
        f"the gateway refused {{refused:exact}} of {{answered:request}} although only {_LOAD}, so the "
        "requests came in bursts",
        _ADD,
    ),
    "raise_queue": (
        f"the queue was full for {{refused:request}}, although only {_LOAD}",
        f"for such bursts, {_RAISE_QUEUE}",
    ),
    "raise_queue/shared": (f"the queue was full for {{refused:request}}: {_SHARED}", _RAISE_QUEUE),
    "shared_workers": (
        f"{_WAITS}, because other {{apis}} take {{others:percent}} of the time, {{other}} the most",
        "give {other} a gateway of its own, or add {parts} ({option})",
    ),
    "long_neighbor": (
        _NEIGHBOR,
        "reserve a worker: set workers of this API to 1, with {option} of {to} or more",
    ),
    "long_neighbor/proxy": (_NEIGHBOR, "give {other} a gateway of its own"),
    "client_deadline": (
        "the time in X-Request-Timeout-Ms passed for {passed:request} before the response",
        "have the clients allow more time",
    ),
    "fixed_window": (
        "under policy {policy}, a request waits {queue_s:ms} on average, but a batch has only "
        "{requests:~request}",
        "set policy cork, which waits only when that pays off",
    ),
    "slope_dominated": _LITTLE_GAIN,
    "give_cost": (
        "batch times depend on the lengths of rows, but limits count rows",
        'set cost="{cost}", and adapt {setting}, which then limits cost instead of rows',
    ),
    "noisy": (
        "batch times vary by ±{spread:percent} around the estimate",
        "look for other load on {machine}",
    ),
    "noisy/cost": (
        "batch times vary by ±{spread:percent} around the estimate",
        "look for other load on {machine}; if some rows take far longer than others, set cost",
    ),
    "thin_traffic": (
        "small batches are right: requests arrive {gap_s:ms} apart on average, and one alone takes "
        "{alone_s:ms}",
        "",
    ),
    # One API of a service that was checked.
    "handler-fails/batch": (
        "with a batch of {rows:row}, but not with fewer, the handler {says}",
        "fix the handler: it receives all rows of a batch at once, and must return one result per row",
    ),
    "handler-fails/schema": (
        "with a row generated from the schema, the handler {says}",
        "fix the handler; if clients never send such a row, narrow the input schema, or set an example with "
        "@api(warmup=...)",
    ),
    "handler-fails": (
        "with its own example, the handler {says}",
        "fix the handler, or set a working example with @api(warmup=...)",
    ),
    "handler-fails/mixed": (
        "the handler answers each of {rows:row} alone, but if all are in one batch, it {says}",
        "fix the handler: it receives all rows of a batch at once, and must return one result per row",
    ),
    "batch-leak": (
        "results depend on the other rows of the batch: {where} is {expected} alone, but {found} as row {at} "
        "of {rows} (tolerance: {tolerance})",
        "compute each result from its row only, without sums, means or maxima over the batch, and set the "
        "model to evaluation mode",
    ),
    "batch-order": (
        "results of a batch are not in the order of its rows: row {at} of {rows} got the result of row "
        "{origin}",
        "return one result per row, in the order of the rows",
    ),
    "not-deterministic": (
        "the same rows gave different results when they ran again: {where} is {expected}, then {found} "
        "(tolerance: {tolerance}), so effects of other rows cannot be detected",
        "if that is not intended, turn off sampling and dropout",
    ),
    "not-compared": (
        "results of rows alone and in batches were not compared: {why}",
        "compare results of your own rows, sent alone and at the same time",
    ),
    "not-compared/equal": (
        "only copies of one row were compared, alone and in batches: {why}",
        "compare results of your own rows, sent alone and at the same time",
    ),
    "row-beyond-timeout": (
        "the smallest batch did not finish within timeout={timeout_s:exact} s",
        "raise timeout, or make the model faster",
    ),
    "not-measured": (
        "batch times were not measured: {why}",
        "set a working example with @api(warmup=...)",
    ),
    "client-below-goal": (
        "clients give up after {client_s:exact_ms}, before the goal of {goal_s:exact_ms}",
        "set mb_max_latency below {to:.6g}, or raise the timeout of the clients",
    ),
    "sizes-beyond-cap": (
        "with mb_max_batch_size={cap}, the sizes {sizes} in allowed_batch_sizes are never used",
        "raise mb_max_batch_size to {to}, or remove these sizes",
    ),
    "lengths-beyond-cap": (
        "with mb_max_batch_size={cap}, rows of the lengths {lengths} in allowed_lengths never share a batch",
        "set mb_max_batch_size to {to} times the number of such rows in a full batch",
    ),
    "row-above-batch-bytes": (
        "a row has {row:byte}: no two rows fit into mb_max_batch_bytes={most}",
        "set mb_max_batch_bytes to {to} for full batches",
    ),
    "body-above-batch-bytes": (
        "a request may have {body:byte}, but a batch of several only {most:exact}",
        "larger requests run alone; no action is needed if they are rare",
    ),
    "queue-below-batch/rows": (_QUEUE, "set --max-queue-rows to {to}, or lower mb_max_batch_size"),
    "queue-below-batch/bytes": (_QUEUE, "raise --max-queue-bytes, or lower mb_max_batch_bytes"),
    "timeout-below-goal": (
        "a batch is aborted after timeout={timeout_s:exact} s, before the goal of {goal_s:exact_ms}",
        "set timeout to {to:exact} s, five times the goal",
    ),
    "timeout-below-batch": (
        "a full batch of {cap:{unit}} takes {full_s:ms}, but timeout is {timeout_s:exact} s: the batch would "
        "be aborted and its worker replaced",
        "set timeout to {to} s, or mb_max_batch_size to {fitting}",
    ),
    "goal-below-row": (_TOO_SLOW, "set mb_max_latency to {to}, or make the model faster"),
    "goal-below-neighbor": (
        _NEIGHBOR,
        "reserve a worker: set workers of this API to 1, with --workers of {to} or more",
    ),
    "goal-below-batch": (
        f"{_ABOVE_GOAL}, so the limit is never reached",
        "set mb_max_batch_size to {fitting}, or raise the goal",
    ),
    "goal-below-batch/ignored": (
        f"{_ABOVE_GOAL}, and policy {{policy}} ignores the goal",
        "set mb_max_batch_size to {fitting}, use policy cork, or raise the goal",
    ),
    "policy-none": (
        "policy is none, but batches of {rows:~{unit}} have {gain:times} the throughput of single requests",
        "remove the setting, so that requests are batched",
    ),
    "little-gain": _LITTLE_GAIN,
    "stages": (
        "a batch of {rows:~{unit}} takes {alone_s:ms}; if its stages overlap with other batches, one ends "
        "every {gap_s:ms} at best",
        "compare with uncork loadtest: a worker overlaps stages only if that saves time",
    ),
    "step": (
        "batch time jumps above {rows:row}, as with models that are compiled for certain sizes",
        "list the batch sizes that the model is built for in allowed_batch_sizes",
    ),
    "drain-below-goal": (
        "shutdown waits {drain:exact} s, but requests may take {longest_s:ms}: some get 503",
        "set --drain-timeout to {to}",
    ),
    "memory-limit": _TOO_LARGE,
    "cap-above-memory/machine": (
        f"{_FULL_BATCH}but the free memory per worker is {{room:MiB}}",
        "set mb_max_batch_size to {to}",
    ),
    "cap-above-memory/limit": (
        f"{_FULL_BATCH}but --max-worker-memory is {{room:MiB}}",
        "set mb_max_batch_size to {to}",
    ),
    # Services that were checked, their machine and their server.
    "worker-above-limit": (
        "a worker uses {base:MiB} before its first batch, but --max-worker-memory is {limit:MiB}",
        "set --max-worker-memory above {to_bytes:MiB}",
    ),
    "workers-above-memory": (_MEMORY, "set --workers to {to}"),
    "workers-above-memory/several": (
        _MEMORY,
        "lower the workers of some services, or serve some on another machine",
    ),
    "workers-above-cores": (_WORKERS, "set --workers to {to}, unless handlers mostly wait for I/O"),
    "workers-above-cores/several": (
        _WORKERS,
        "lower the workers of the services to {to} in total, unless handlers mostly wait for I/O",
    ),
    "workers-above-gpus": (
        "{workers} workers share {gpus:GPU}",
        "set --workers to {gpus}, unless several workers fit on one GPU",
    ),
    "gpus-unused": ("{gpus} GPUs for {workers:worker}: some are never used", "set --workers to {gpus}"),
    "gpu-shared": (
        "GPU {gpu} has workers of {services}",
        "set gpus to other GPUs in the table of one service, unless their models fit on one GPU together",
    ),
    "threads-above-cores": (
        "OMP_NUM_THREADS={limits} gives {workers:worker} {threads:thread} in total, on {cores:core}",
        "unset OMP_NUM_THREADS and similar variables: each worker then gets its share of the cores",
    ),
    "connections-above-files": (
        "--max-connections is {connections}, but the limit of open files leaves {possible} to clients",
        "raise the limit (ulimit -n), or set --max-connections to {possible}",
    ),
    "keys-without-tls": (
        "API keys are sent unencrypted to {host}",
        "set --tls-cert, or listen on --host 127.0.0.1 behind a proxy that terminates TLS",
    ),
    "admin-is-public": (
        "the admin port, which requires no API key, listens on {host}",
        "set --admin-host to 127.0.0.1, or make sure that only operators can reach it",
    ),
    # A service that was tuned.
    "goal-at-no-rate": (
        "no rate meets the goal of {goal_s:exact_ms} for {wanted:percent} of requests; a single request "
        "takes {needed_s:ms}",
        "raise --goal-ms, or make the model faster",
    ),
    "goal-not-met": (
        "the best predicted share of requests within the goal of {goal_s:exact_ms} is {share:share}, with "
        "{workers:worker}, instead of {wanted:percent}",
        "raise --goal-ms, or make the model faster",
    ),
    "rate-above-capacity": (
        "{workers:worker} can sustain at most {capacity:number}/s, not {rate:exact}/s",
        "raise --max-workers",
    ),
    "gateway-limit": (
        "the gateway sustains about {rate:number}/s on this machine, so a higher rate is not verified",
        "",
    ),
    "load-test-void": ("the load test is void: {why}", "lower --rate, or raise --processes"),
    "load-test-failed": ("the load test failed: {why}", ""),
    "wrong-responses": ("{wrong:wrong response}, the first: {first}", ""),
    "goal-missed": (
        "{share:share} of the measured requests are within the goal, instead of {wanted:share}",
        "",
    ),
    "latency-differs": (
        "the measured {name} of {measured_s:ms} is {ratio:.2f} times the predicted {predicted_s:ms}",
        "",
    ),
    "lengths-irrelevant": (f"{_LENGTHS}so batch times do not depend on the lengths of bodies", ""),
    "lengths-summed": (
        f"{_LENGTHS}so batch times follow the sum of the lengths, and the model does not pad",
        "",
    ),
    "lengths-padded": (
        f"{_LENGTHS}so the model pads a batch to its longest row: {{padding:percent}} of a batch of "
        "{requests} bodies in random order is padding",
        "",
    ),
}
"""The problem and the remedy, by key: ``code``, or ``code/case`` if the texts depend on the case."""
