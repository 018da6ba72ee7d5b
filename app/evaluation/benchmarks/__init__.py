"""Labeled pairs to judge: the benchmarks of the paper, the demo pairs and files of users."""
