"""A running server: its services, and what a reload changes of them."""
