"""Servers of other projects, each in an environment of its own, measured beside the gateway."""
