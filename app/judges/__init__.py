"""Scoring: comparisons become scores, by one kind of judge in each file."""
