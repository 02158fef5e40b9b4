"""Read settings: configuration file, environment, names and sources."""
