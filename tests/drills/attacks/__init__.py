"""Attacks on a running service, with figures that show whether it held: `make drills`."""
