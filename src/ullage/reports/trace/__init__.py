"""How full the devices of a run were, and why not fuller."""
