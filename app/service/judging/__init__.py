"""Judging: prompts in both orders, scores, calibrated decisions.

`judge` leads a comparison through `prompts` (with `quoting`), the engine and `decisions`;
`pac_thresholds` computes the thresholds of "pac". `batches` handles items that cannot be judged.
"""
