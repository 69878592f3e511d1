"""Job records in, one table of who held which device when: one file a format. See `ullage.sources.jobs.job`."""
