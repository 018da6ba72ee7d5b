"""Copies a complete store to a file, and back into any store."""
