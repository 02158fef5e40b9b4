"""Everything the gateway answers itself: health, models, status, dashboard, docs, OpenAPI."""
