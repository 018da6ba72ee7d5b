"""Comparisons in files: rows of any format, and the shapes in which people keep them."""
