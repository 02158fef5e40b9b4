"""The workers: their slots and batches, and predictions of when they will be free or ready."""
