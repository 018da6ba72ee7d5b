"""Attacks on a running service, and the figures that show whether it held: `make drills`."""
