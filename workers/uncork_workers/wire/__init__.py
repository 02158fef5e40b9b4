"""Shared by gateway and worker: frames, messages, service descriptions and setting overrides."""
