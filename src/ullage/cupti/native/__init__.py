"""The recorder in C, and how it is built: what runs inside a profiled program, where no Python may run."""
