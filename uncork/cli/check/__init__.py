"""``uncork check``."""
