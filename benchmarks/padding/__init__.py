"""Batches of rows of different lengths, simulated before and with the rule that chooses their members."""
