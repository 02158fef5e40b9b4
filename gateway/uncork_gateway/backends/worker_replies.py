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
    lists = (reply.statuses, reply.lengths, reply.content_types, reply.headers)
    lengths = [len(one) for one in lists if one is not None]
    if set(lengths) != {len(batch.lengths)}:
        raise FrameError(
            f"the response's lists have lengths {lengths}, the batch has {len(batch.lengths)} requests"
        )
    if len(reply.forms) not in (1, len(reply.lengths)):
        raise FrameError(f"the response has {len(reply.forms)} forms for {len(reply.lengths)} requests")
    if not all(0 <= at < len(reply.statuses) for at in reply.reasons):
        raise FrameError(
            f"the response has reasons for requests {list(reply.reasons)[:8]}, which are not in the batch"
        )
