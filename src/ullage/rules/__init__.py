"""Rules for Prometheus and vmalert, generated from the definitions of the metrics: what a database records of a fleet and warns of."""
