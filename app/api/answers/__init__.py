"""Builds the answers of the service, which `scope_judge.records` declares, and their JSON."""
