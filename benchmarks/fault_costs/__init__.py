"""The costs of overload, poisoned rows and the replacement of workers."""
