"""What a service author writes: services, adapters, outputs; and how it is checked and loaded."""
