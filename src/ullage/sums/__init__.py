"""Additive quantities: what a sample stands for, who owns a GPU-second, seconds and cycles by device."""
