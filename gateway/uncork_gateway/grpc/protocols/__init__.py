"""Conversion between messages of gRPC and tensors, and the merging and splitting of them."""
