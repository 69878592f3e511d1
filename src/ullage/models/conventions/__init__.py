"""What other frameworks would print for the same step, their known miscounts included; begin with `convention.py`."""
