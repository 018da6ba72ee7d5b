"""Rewards for trainers, from comparisons of the responses to one question."""
