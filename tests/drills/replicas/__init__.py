"""Several replicas that share one calibration, behind the shipped proxy."""
