"""CUDA by ctypes, under the names of cuda-bindings, for a machine where that is not installed."""
