"""Settings from the configuration file and the environment."""
