"""What overload, poisoned rows and the replacement of workers cost: scripts/bench-faults."""
