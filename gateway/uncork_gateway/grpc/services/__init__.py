"""The gRPC services that need no batch: health, metadata, reflection."""
