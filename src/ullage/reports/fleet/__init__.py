"""How full a fleet is, and where the shortfall goes."""
