"""Judging: prompts in both orders, scores, calibrated decisions."""
