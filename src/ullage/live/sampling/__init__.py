"""This machine's GPUs read at an interval."""
