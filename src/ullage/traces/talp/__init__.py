"""TALP's JSON reports in, sums out."""
