"""Servers of other projects, each in its own environment, compared with the gateway."""
