"""JSON traces of any size, read piece by piece: what the formats that are JSON share."""
