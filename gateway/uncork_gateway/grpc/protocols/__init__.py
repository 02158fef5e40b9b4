"""Converts between gRPC messages and tensors, and merges and splits the messages."""
