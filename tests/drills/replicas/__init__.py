"""Several replicas that share one calibration, behind the proxy that is shipped."""
