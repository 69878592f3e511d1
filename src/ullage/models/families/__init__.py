"""The architectures, one family a file: each registers what it is called in configs, and yields the work of its forward pass."""
