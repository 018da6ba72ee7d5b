"""Metrics, gauges, logs and defects of the running service."""
