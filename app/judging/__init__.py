"""Judging: scores become calibrated decisions.

`judge` leads a batch through its phases, and `decisions` decides one comparison.
"""
