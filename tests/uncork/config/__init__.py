"""Configuration: file, environment, command line."""
