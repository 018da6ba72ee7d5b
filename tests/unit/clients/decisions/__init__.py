"""Clients of decision servers, from the package index, at this service."""
