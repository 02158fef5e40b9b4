"""Model servers of other projects, direct and through the batching proxy."""
