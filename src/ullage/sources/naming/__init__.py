"""What exporters call things, and whose number it is."""
