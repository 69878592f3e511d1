"""Whether what was measured can be believed."""
