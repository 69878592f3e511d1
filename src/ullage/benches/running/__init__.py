"""How microbenchmarks are run: the device and its driver, the harness that checks and times, the stamp, a process of their own."""
