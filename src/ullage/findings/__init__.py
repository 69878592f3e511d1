"""What is worth doing about an answer, in order of what it is worth; begin with `kind.py`."""
