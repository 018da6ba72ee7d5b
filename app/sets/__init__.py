"""Calibration sets: how they are made, kept, restored and watched."""
