"""Requests: their bodies, the routes that handle them, and the frames of their batches."""
