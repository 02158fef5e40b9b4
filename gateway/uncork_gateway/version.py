"""The version of the installed package."""

from importlib.metadata import version

# Read once: reading the file takes longer than the rest of a scrape or a page.
VERSION = version("uncork")
