"""The statistics of the paper: pure functions and frozen values, without I/O or clock."""
