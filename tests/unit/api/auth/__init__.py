"""Tests of app/api/auth."""
