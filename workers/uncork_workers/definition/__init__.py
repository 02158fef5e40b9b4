"""What service authors write (services, adapters, outputs), and how it is checked and loaded."""
