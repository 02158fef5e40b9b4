"""Mirrors uncork/server/running."""
