"""Outside the worker processes: start, watch, replace and stop them."""
