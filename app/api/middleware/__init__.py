"""Middleware around all routes: limits, deadlines, metrics."""
