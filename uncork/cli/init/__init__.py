"""``uncork init``."""
