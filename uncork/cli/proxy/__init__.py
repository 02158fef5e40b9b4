"""``uncork proxy``."""
