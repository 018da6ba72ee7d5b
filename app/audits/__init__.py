"""Audits: judgments drawn at random from the traffic, and the labels that people give them."""
