"""What /status tells."""
