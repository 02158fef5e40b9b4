"""Model servers of other projects, asked directly and through the batching proxy."""
