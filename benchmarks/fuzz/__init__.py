"""Mutated requests to real services, over raw sockets."""
