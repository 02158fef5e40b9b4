"""Model servers of other projects as backends, over HTTP and gRPC."""
