"""Runs vLLM's API server so that its `/v1/systemone` serves the demo judge.

vLLM 0.32.0 serves decisions with the Qwen architectures and a few others, and the demo judge is a
Llama; its small vocabulary has no tokens for yes and no. This program adds the architecture to
vLLM's list, and removes the type of question that asks for yes and no. Everything else is vLLM's.
"""

import runpy

if __name__ == "__main__":
    from vllm.entrypoints.generate.structured_decisions.question_types import QUESTION_TYPES
    from vllm.entrypoints.generate.structured_decisions.strategies import (
        READ_STRATEGIES,
        NextTokenStrategy,
    )

    READ_STRATEGIES["LlamaForCausalLM"] = NextTokenStrategy
    del QUESTION_TYPES["noul"]
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
