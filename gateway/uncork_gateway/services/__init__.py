"""The services of a gateway: their APIs, workers, routes, and how they change."""
