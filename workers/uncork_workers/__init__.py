"""Service definition, input adapters, the worker process, and the supervisor of worker processes.

The gateway imports only ``description`` and ``frames`` from here; it never loads the user's code.
"""
