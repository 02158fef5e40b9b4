"""The command line: ``uncork``, and ``python -m uncork``."""

import os
import signal
import sys


def main() -> None:
    if os.getpid() == 1:
        # Without a handler, the system ignores the signal for process 1, which a container waits for.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    from uncork_workers.process.streams import open_closed_streams

    open_closed_streams()
    from uncork.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
