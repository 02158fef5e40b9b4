"""Tests of the dialects of gRPC."""
