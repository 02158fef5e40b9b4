"""Protocols of other model servers: read, merged into one call, dealt out again."""
