"""Telemetry in, samples out: one file a format, found by content. See `ullage.sources.source`."""
