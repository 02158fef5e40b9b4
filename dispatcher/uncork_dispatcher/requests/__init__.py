"""Queues of requests, their order, and the batches made of them."""
