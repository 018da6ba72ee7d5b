"""Tests of app/api/middleware."""
