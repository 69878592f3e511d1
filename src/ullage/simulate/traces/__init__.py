"""Runs with known answers, written as any tool would have recorded them."""
