"""A fleet with known answers, into files or behind HTTP. Parts make traces, and one training job."""
