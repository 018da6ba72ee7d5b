"""Tests of app/service/rewards."""
