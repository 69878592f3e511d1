"""Trace files in, intervals out: one file a format."""
