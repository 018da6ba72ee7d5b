"""Contract tests of the calibration stores; each runs on every store."""
