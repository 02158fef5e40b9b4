"""``uncork worker``."""
