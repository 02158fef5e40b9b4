"""``uncork simulate``."""
