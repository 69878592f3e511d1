"""Microbenchmarks: what a GPU can really do, one kernel family a file."""
