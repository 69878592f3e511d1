"""What CUPTI's counters say, and what can be counted."""
