"""Products of matrices: what their tiles cost, of one kernel, a file, a model's step or a trace."""
