"""HTTP/2 for gRPC: connections, streams, messages, and the limits on clients."""
