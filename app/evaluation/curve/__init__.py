"""Coverage and risk of each alpha on labeled pairs that a judge has already judged."""
