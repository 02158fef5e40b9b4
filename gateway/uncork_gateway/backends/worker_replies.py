"""The replies of workers to batches, and their checks."""

from typing import NamedTuple

from uncork_workers.wire.frames import FrameError
from uncork_workers.wire.messages import Batch, Reply


class Executed(NamedTuple):
    """A worker's reply, with the bodies that follow it."""

    reply: Reply
    bodies: list[bytes]


def check_reply(batch: Batch, reply: Reply) -> None:
    """Check that a reply fits its batch.

    Raises:
        FrameError: if the reply does not fit.
    """
    requests = len(batch.lengths)
    for each in (reply.statuses, reply.lengths, reply.content_types, reply.headers):
        if each is not None and len(each) != requests:
            raise FrameError(f"a list of the response has length {len(each)}, the batch {requests} requests")
    if len(reply.forms) not in (1, requests):
        raise FrameError(f"the response has {len(reply.forms)} forms for {requests} requests")
    if reply.reasons and not (min(reply.reasons) >= 0 and max(reply.reasons) < requests):
        raise FrameError(
            f"the response has reasons for requests {list(reply.reasons)[:8]}, which are not in the batch"
        )
