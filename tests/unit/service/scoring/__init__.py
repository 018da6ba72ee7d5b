"""Tests of app/service/scoring."""
