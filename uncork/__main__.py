"""``python -m uncork``: the command line."""

from uncork.cli.app import main

main()
