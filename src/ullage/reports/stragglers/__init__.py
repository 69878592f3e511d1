"""GPUs and hosts that make their job wait: found from what each shows beside the others at the same time and beside its own past."""
