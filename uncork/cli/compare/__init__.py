"""``uncork compare``."""
