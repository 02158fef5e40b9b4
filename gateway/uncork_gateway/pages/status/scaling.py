"""Describes the reason for the number of workers."""

from typing import assert_never

from uncork_dispatcher import Decision, ScalingReason, ScalingState
from uncork_dispatcher.wording import are, capitalized, exact, number, plural
from uncork_gateway.pages.status import document


def describe_scaling(decision: Decision, least: int, most: int, startup_s: float | None) -> document.Scaling:
    """Describe a decision on the number of workers; ``startup_s`` is how long a worker takes to start."""
    return document.Scaling(
        wanted=decision.wanted,
        target=decision.target,
        least=least,
        most=most,
        start_s=startup_s,
        state=decision.reason.state,
        sentence=_sentence(decision, least, most, startup_s),
    )


def _sentence(decision: Decision, least: int, most: int, startup_s: float | None) -> str:
    wanted, target, reason = decision
    if reason.state == "unknown":
        names = " and ".join(reason.unknown)
        return f"Too few batches of {names} have run to know how many workers the traffic needs."
    more = min(wanted, most) - target
    takes = "" if startup_s is None else f"; a start takes about {number(startup_s)} s"
    if reason.state == "asleep":
        return f"No worker runs, because no request has arrived for a while. The next one starts one{takes}."
    endings: dict[ScalingState, str] = {
        "enough": ".",
        "confirming": f". {more} more {'starts' if more == 1 else 'start'} if that is still so in 5 s.",
        "up": f". {plural(exact(target), 'worker')} {are(target)} ready or starting{takes}.",
        "at_most": f", but --workers allows at most {most}.",
        "down": f". One more worker stops; {target} {'stays' if target == 1 else 'stay'}.",
        "waiting": f". One of {target} stops in {reason.wait_s or 0:.0f} s unless the traffic rises.",
        "recent_peak": " now. A peak in the last 5 minutes needed more, so no worker stops.",
        "starting": ". No worker stops while others start.",
        "at_least": f", but --workers keeps at least {least}.",
    }
    return capitalized(_need(wanted, reason)) + endings[reason.state]


def _need(wanted: int, reason: ScalingReason) -> str:
    workers = plural(exact(wanted), "worker")
    if reason.api is None:
        return f"without traffic, {workers} {are(wanted)} enough"
    match reason.limit:
        case "goal":
            return f"the traffic needs {workers}, because of the goal of {reason.api}"
        case "throughput":
            return f"the traffic needs {workers}, because of the arrivals of {reason.api}"
        case "goal_out_of_reach":
            return (
                f"the traffic needs {workers} for the arrivals of {reason.api}, whose goal no number of "
                "workers meets"
            )
        case None:
            return f"the traffic needs {workers}"
        case _:
            assert_never(reason.limit)
