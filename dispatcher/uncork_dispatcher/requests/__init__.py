"""The requests that the core knows: queues, their order, and the slots that run them."""
