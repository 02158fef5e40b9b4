"""``uncork reload``."""
