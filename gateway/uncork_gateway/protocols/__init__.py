"""Protocols of other model servers: read requests, merge them into one call, split the reply."""
