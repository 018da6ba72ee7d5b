"""The engines: one adapter for each vendor, which only that adapter imports."""
