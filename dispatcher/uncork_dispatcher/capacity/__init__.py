"""Computes how many workers the traffic needs, and when to start or stop workers."""
