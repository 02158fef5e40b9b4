"""Whatever executes a batch: our own workers."""
