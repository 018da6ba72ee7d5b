"""HTTP: the only package that knows requests, responses and status codes."""
