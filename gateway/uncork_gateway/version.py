"""Which version this is."""

from importlib.metadata import version

# It is read from a file, which takes longer than all else that a scrape or a page needs.
VERSION = version("uncork")
