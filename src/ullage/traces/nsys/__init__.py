"""Nsight Systems' SQLite exports in, intervals out."""
