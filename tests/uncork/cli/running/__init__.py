"""Mirrors uncork/cli/serve/running."""
