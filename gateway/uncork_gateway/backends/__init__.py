"""Whatever executes a batch: our own workers, or model servers of others."""
