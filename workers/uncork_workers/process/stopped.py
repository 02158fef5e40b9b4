"""The exception with which a signal ends a worker."""


class Stopped(SystemExit):
    """A signal ends the process, also while code of the service runs.

    Unlike other exceptions in that code, it is no failure of a request. asyncio lets a ``SystemExit`` leave
    the event loop from any of its tasks.
    """
