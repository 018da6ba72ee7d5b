"""Who may call a route: keys, roles, and local callers."""
