"""Load tests of a gateway over HTTP: generators, and benchmarks that compare side by side."""
