"""Judging: scores become calibrated decisions.

`judge` leads a batch through its phases, `thresholds` finds the thresholds of its criteria, and
`decisions` decides one comparison.
"""
