"""`judge FILE` is killed, stopped and starved of disk; every row must be judged once."""
