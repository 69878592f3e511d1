"""Ullage's own recordings in, intervals or sums out."""
