"""The binding to NVIDIA's CUPTI: found on this machine, called through ctypes, its records decoded in bulk.

Only NumPy and pyarrow are needed, and CUPTI's own library (the extra `cupti`, or a CUDA toolkit); a small recorder in C is built on
demand where a compiler is. What is here knows records, counters and their names; it knows no efficiency.
"""
