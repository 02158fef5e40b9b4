"""Small services that benchmarks serve by file path."""
