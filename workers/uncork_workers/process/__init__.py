"""Inside a worker process: run batches, warm up, split failed batches, stream."""
