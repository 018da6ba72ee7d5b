"""Judging: scores become calibrated decisions."""
