"""A real gateway with real workers under load and faults; a ledger tracks every request."""
