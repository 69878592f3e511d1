"""Why the warps of kernels waited, by sampled program counters."""
