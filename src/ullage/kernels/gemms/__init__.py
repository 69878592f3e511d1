"""Names of matrix-product kernels, decoded: a file a naming scheme."""
