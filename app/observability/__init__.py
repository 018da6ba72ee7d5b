"""Metrics, gauges, traces, logs and defects of the running service."""
