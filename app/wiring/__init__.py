"""Makes running services from the settings."""
