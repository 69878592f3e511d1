"""Probes: every instruction whose machine code Ullage looks at, a module a family."""
