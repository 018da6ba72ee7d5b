"""Timeouts for events that must happen: only a hang takes longer.

A machine three times slower, with other work on both its cores, takes ten times as long as a quiet
one. Tests use these timeouts instead of their own, so that they pass on any machine.
"""

# A start of the service takes 3 s on two quiet cores, and 33 s at a load of 10.
PATIENCE_S = 300.0
# A start with vLLM loads a model, compiles, and calibrates the demo judge.
VLLM_START_S = 600.0
