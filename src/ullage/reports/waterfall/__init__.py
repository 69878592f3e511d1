"""From peak to MFU: the chain of one job, and what it rests on."""
