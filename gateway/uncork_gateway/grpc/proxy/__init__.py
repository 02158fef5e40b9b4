"""gRPC servers behind the batching proxy, and the calls of clients to them."""
