"""The paper's experiments: a judge measured on labeled pairs, without a running service.

The code of each part of the paper:

- data sets: `benchmarks/catalogue.py` (`load_benchmark`), `benchmarks/hub.py`
- prompts: `judgments/questions.py`
- uncertainty methods: `methods.py`, one function each, and the table `METHODS`
- selection rules: `selectors.py`, one function each, and the table `SELECTORS`
- metrics: `metrics.py`
- random splits, ablations and transfer: `protocol.py`
- the paper's own numbers: `paper.py`, `paper_tables.json`

`measurement.py` runs all of these on judged pairs, `results.py` holds the outcome, and `report/`
prints it. `judgments/` asks the judge and keeps its answers. `curve.py` is `scope-judge curve`.
"""
