"""Messages of gRPC: their tables, and conversion between them and tensors."""
