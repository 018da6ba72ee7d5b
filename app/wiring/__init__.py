"""Settings -> running services."""
