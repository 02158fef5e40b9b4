"""Where the workers of a server run, and what they need there."""
