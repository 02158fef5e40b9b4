"""Messages of gRPC: their definitions, and conversion between them and tensors."""
