"""Tests of the reward routes."""
