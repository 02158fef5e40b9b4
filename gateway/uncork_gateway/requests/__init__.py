"""One request: its body, the routes that answer it, and the frames of its batch."""
