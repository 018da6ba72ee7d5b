"""Simulated worlds whose truth is known, for tests/statistics and the tables of proofs."""
