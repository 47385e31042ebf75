"""visualization."""
