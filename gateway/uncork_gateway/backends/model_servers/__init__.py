"""Other projects' model servers as backends, over HTTP and gRPC."""
