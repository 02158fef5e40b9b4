"""Queues of requests, their order, and the slots that run them."""
