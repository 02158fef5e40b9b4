"""Service definition, input and output adapters, the worker process, and its supervisor.

The gateway imports only ``uncork_workers.wire`` and never loads user code.
"""
