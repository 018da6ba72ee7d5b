"""Tests of the service through HTTP."""
