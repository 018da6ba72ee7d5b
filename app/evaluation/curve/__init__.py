"""Coverage and risk of each alpha on labelled pairs that a judge has already judged."""
