"""gRPC between clients and the dispatcher: HTTP/2 connections, calls, services."""
