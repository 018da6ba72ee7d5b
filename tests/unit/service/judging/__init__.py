"""Tests of app/service/judging."""
