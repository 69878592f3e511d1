"""What is there of what Ullage could use, on this machine and in a place of telemetry, and what the rest would add."""
