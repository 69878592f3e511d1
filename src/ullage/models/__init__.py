"""What a step costs: one file an architecture family in `families/`; begin with `model.py`, then read `families/llama.py`."""
