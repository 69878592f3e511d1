"""Whether a reported MFU, a FLOPs function or a table of peaks can be believed."""
