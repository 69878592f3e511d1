"""A profile run again with other durations: what its host threads and devices waited for, and what would follow."""
