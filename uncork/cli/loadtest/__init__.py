"""``uncork loadtest``."""
