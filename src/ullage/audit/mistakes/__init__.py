"""The known ways to get an MFU wrong, each with its exact factor for a given model; begin with `mistake.py`."""
