"""One job: what a fleet's report says of it, its devices, and what the scheduler's records add."""
