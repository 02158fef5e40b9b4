"""Valid requests to real services, mutated and sent over raw sockets."""
