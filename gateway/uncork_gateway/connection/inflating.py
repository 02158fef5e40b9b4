"""Decompresses bodies and messages, in a thread if that takes long."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

from uncork_gateway.connection.decompression import inflate
from uncork_gateway.interfaces import BodyPool

# Inflating 256 KiB takes little longer than the rest of a request; bodies with more steps go to a thread. A
# step ends with a gzip member, too: a small body can have thousands of those, which inflate to nothing.
_STEP_BYTES = 16 * 1024
STEPS_AT_ONCE = 16
_inflaters = ThreadPoolExecutor(max_workers=2, thread_name_prefix="inflate")


class Inflating:
    """One compressed body or message. Creating it makes the first steps.

    Args:
        body, encoding, max_bytes: as for :func:`~uncork_gateway.connection.decompression.inflate`, with its
            errors.
        at_once: how many steps to make.

    Attributes:
        steps: how many have been made.
        inflated: the whole, if fewer steps than ``at_once`` were enough; else None.
    """

    def __init__(self, body: bytes, encoding: bytes, *, max_bytes: int, at_once: int) -> None:
        steps = inflate(body, encoding, max_bytes=max_bytes, step_bytes=_STEP_BYTES)
        begun = list(islice(steps, at_once))
        self.steps = len(begun)
        self.inflated = b"".join(begun) if self.steps < at_once else None
        self._pieces = chain(begun, steps)
        self._size = len(body) + sum([len(piece) for piece in begun])

    def finish_in_thread(self, pool: BodyPool, done: Callable[[asyncio.Future[bytes]], object]) -> None:
        """Make the other steps in a thread, and call ``done`` with the result or the error.

        Until then, ``pool`` counts the compressed body and the first steps.
        """
        pool.used_bytes += self._size

        def finished(inflating: asyncio.Future[bytes]) -> None:
            pool.used_bytes -= self._size
            done(inflating)

        loop = asyncio.get_running_loop()
        loop.run_in_executor(_inflaters, b"".join, self._pieces).add_done_callback(finished)
