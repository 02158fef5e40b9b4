"""``fake_helper.py SOCKET``: relays between the pipes of a launcher and a test, which plays the helper."""

import os
import socket
import sys
import threading


def _relay_commands(test: socket.socket) -> None:
    for line in sys.stdin.buffer:
        test.sendall(line)
    os._exit(0)


def main() -> None:
    """Relay until either side ends; exit with 7 if it is the test."""
    test = socket.socket(socket.AF_UNIX)
    test.connect(sys.argv[1])
    threading.Thread(target=_relay_commands, args=(test,), daemon=True).start()
    for line in test.makefile("rb"):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    print("[a log line]\nlast words\n[another]", file=sys.stderr, flush=True)
    os._exit(7)


if __name__ == "__main__":
    main()
