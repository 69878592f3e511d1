"""`ullage doctor`."""
