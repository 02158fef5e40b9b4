"""Services that the end-to-end tests run."""
