"""``uncork config``."""
