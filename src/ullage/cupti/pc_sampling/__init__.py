"""Where warps are and why they wait: program counters sampled by the hardware."""
