"""Tests of gRPC."""
