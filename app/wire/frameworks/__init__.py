"""JSON of the reward routes in the shapes of trainers: one file for each framework.

These frameworks have no value for "no reward". It is a 0 for them, with a number beside it that
names the reason: `abstained`, `tied`, `failed` or `empty`.
"""
