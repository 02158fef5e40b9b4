"""Errors in options and settings."""


class WrongUsage(Exception):
    """The command was called with wrong options; the message says which, and what is accepted."""
