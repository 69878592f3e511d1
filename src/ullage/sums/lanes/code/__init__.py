"""Which code a run's time belongs to: operators, Python functions, modules and ranges, calls of the GPU's interface."""
