"""Tests of app/wire."""
