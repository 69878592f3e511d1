"""Readings of any form into rows of samples."""
