"""The kinds of findings of a fleet, a file each; begin with `ullage.findings.kind`."""
