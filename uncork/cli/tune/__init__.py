"""``uncork tune``."""
