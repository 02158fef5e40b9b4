"""The command line: one folder per command."""
