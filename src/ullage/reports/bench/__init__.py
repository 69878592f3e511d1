"""What microbenchmarks found, beside what is published."""
