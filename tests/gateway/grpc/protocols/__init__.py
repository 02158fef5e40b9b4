"""Tests of the messages of gRPC."""
