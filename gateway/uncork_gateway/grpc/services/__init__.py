"""The gRPC services that answer from what the gateway knows, without a batch."""
