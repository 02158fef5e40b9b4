"""A real gateway with real workers under load and under faults; a ledger of what becomes of every request."""
