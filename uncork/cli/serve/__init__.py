"""``uncork serve``."""
