"""gRPC clients of a chaos run: calls on the ledger, and the faults that they inject."""
