"""Means over time, and where they changed: the noise of a course, its segments, what came and went, runs beside runs of their kind."""
