"""Tests of the proxy for gRPC servers."""
