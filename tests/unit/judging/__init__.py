"""Tests of app/judging."""
