"""The HTTP/1.1 connection: protocol, client limits, timeouts, decompression, routes."""
