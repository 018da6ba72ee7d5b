"""Authentication and authorization: keys, roles, and callers on this machine."""
