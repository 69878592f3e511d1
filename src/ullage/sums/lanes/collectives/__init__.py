"""Collectives across ranks: who came when, what they moved, who waited."""
