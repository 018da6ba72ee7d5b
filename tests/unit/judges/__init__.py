"""Tests of app/judges."""
