"""What counter metrics are called, in every release and on every chip."""
