"""PyTorch's profiler traces (Kineto): Chrome trace JSON in, intervals out."""
