"""The workers: which there are, what they run, and which will be free or ready when."""
