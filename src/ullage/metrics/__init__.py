"""Equations over sums and ceilings, each defined once. See `ullage.metrics.metric`."""
