"""What gateway and worker share: frames, the description of a service, overrides of its settings."""
