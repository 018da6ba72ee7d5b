"""Simulated worlds whose truth is known, for tests/statistics and docs/make_promise_tables.py."""
