"""Paraver traces (.prv, .pcf, .row) in, intervals out."""
