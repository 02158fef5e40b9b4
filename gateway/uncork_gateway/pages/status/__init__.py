"""What goes on in a gateway, in figures and in sentences."""
