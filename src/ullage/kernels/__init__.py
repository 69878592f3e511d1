"""What a kernel is, from its name."""
