"""The CORK dispatcher: queues requests, and releases them as one batch at the right moment.

* :class:`Dispatcher` is the core: it decides, with time as an argument (``core.py``).
* :class:`AsyncDispatcher` is the shell that drives it on asyncio (``asyncio_dispatcher.py``).
* The policies decide when to release and how much (``policies/``).
* :class:`Autoscaler` decides how many workers to run (``capacity/``).
"""

from uncork_dispatcher import core
from uncork_dispatcher.actions import BatchStatus, ShedReason
from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.capacity.autoscaler import (
    ApiDemand,
    Autoscaler,
    Decision,
    ScalingReason,
    ScalingState,
)
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.errors import (
    BatchTimedOut,
    DispatchError,
    RequestExpired,
    RequestShed,
    WorkerLost,
    WrongResultCount,
)
from uncork_dispatcher.jobs import (
    BatchResult,
    Observer,
    OnBatchEnd,
    RequestResult,
    Runner,
    Submission,
    Waiter,
    longest_queued_s,
    payloads_of,
)
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.policies import POLICIES, POLICY_USAGE, make_policy
from uncork_dispatcher.policies.base import HoldReason, Reason
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules, SettingError
from uncork_dispatcher.stats import ApiSample, ApiStats, ClassStats, Holding, RunningBatch, WorkStats
from uncork_dispatcher.tasks import TaskRunner

CORE_IS_COMPILED = not core.__file__.endswith(".py")
"""True if the core runs as compiled code. ``hatch_build.py`` compiles it."""

__all__ = [
    "CORE_IS_COMPILED",
    "POLICIES",
    "POLICY_USAGE",
    "ApiDemand",
    "ApiRules",
    "ApiSample",
    "ApiStats",
    "AsyncDispatcher",
    "Autoscaler",
    "Batch",
    "BatchResult",
    "BatchStatus",
    "BatchTimedOut",
    "ClassStats",
    "Decision",
    "DispatchError",
    "Dispatcher",
    "Estimate",
    "HoldReason",
    "Holding",
    "Observer",
    "OnBatchEnd",
    "Reason",
    "RequestExpired",
    "RequestResult",
    "RequestShed",
    "Runner",
    "RunningBatch",
    "ScalingReason",
    "ScalingState",
    "SettingError",
    "ShedReason",
    "Submission",
    "TaskRunner",
    "Waiter",
    "WorkStats",
    "WorkerLost",
    "WrongResultCount",
    "longest_queued_s",
    "make_policy",
    "payloads_of",
]
