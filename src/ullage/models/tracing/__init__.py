"""Formulas held against the real models: built without weights, run without arithmetic, counted product by product.

Begin with `certificate.py` (is the formula right?) and `derived.py` (what if there is none?).
"""
