"""Mirrors uncork/checking."""
