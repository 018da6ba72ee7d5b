"""`scope-judge curve`: the coverage and risk of every alpha on pairs that are already judged."""
