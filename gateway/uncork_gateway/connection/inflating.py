"""Decompresses bodies and messages, in a thread if it takes long."""

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
    """Inflates one compressed body or message; the constructor makes the first steps.

    Args:
        body, encoding, max_bytes: as for :func:`~uncork_gateway.connection.decompression.inflate`, which also
            lists the errors.
        at_once: the number of steps that the constructor may make.

    Attributes:
        steps: the number of steps made.
        inflated: the result if those steps completed it, else None.
    """

    def __init__(self, body: bytes, encoding: bytes, *, max_bytes: int, at_once: int) -> None:
        steps = inflate(body, encoding, max_bytes=max_bytes, step_bytes=_STEP_BYTES)
        begun = list(islice(steps, at_once))
        self.steps = len(begun)
        self.inflated = b"".join(begun) if self.steps < at_once else None
        self._pieces = chain(begun, steps)
        self._size = len(body) + sum([len(piece) for piece in begun])

    def finish_in_thread(self, pool: BodyPool, done: Callable[[asyncio.Future[bytes]], object]) -> None:
        """Make the remaining steps in a thread; ``done`` receives a future with the result or the error.

        Until then, ``pool`` counts the memory of the compressed body and of the steps made.
        """
        pool.used_bytes += self._size

        def finished(inflating: asyncio.Future[bytes]) -> None:
            pool.used_bytes -= self._size
            done(inflating)

        loop = asyncio.get_running_loop()
        loop.run_in_executor(_inflaters, b"".join, self._pieces).add_done_callback(finished)
