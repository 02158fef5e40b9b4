"""The command line; each command has a folder with its ``command.py``."""
