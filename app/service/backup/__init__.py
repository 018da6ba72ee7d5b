"""Copies a whole store into a file, and back into any store."""
