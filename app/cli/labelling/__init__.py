"""Pairs on a terminal, for people who label them with key presses."""
