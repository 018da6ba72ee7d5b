"""Trains the bundled judge and measures it; the service needs none of this at run time."""
