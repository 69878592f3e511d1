"""What changed in a fleet, and since when: courses of jobs, runs beside earlier runs, all jobs at once."""
