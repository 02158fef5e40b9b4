"""The gateway's own pages: health, models, status, dashboard, docs, OpenAPI."""
