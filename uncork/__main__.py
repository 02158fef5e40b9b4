"""``python -m uncork``: the command line."""

from uncork.cli import main

main()
