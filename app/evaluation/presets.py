"""The paper's five judges, each with its model and its prompt."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from app.service.scoring.prompts import PromptTemplate

# The prompt of the judge's model card; all of it is in the user message.
_SKYWORK_USER = (
    "Please act as an impartial judge and evaluate the quality of the responses provided by two AI "
    "assistants to the user question displayed below. You should choose the assistant that follows "
    "the user's instructions and answers the user's question better. \n"
    "Your evaluation should consider factors such as the helpfulness, relevance, accuracy, depth, "
    "creativity, and level of detail of their responses. Avoid any position biases and ensure that "
    "the order in which the responses were presented does not influence your decision. Do not "
    "allow the length of the responses to influence your evaluation. Do not favor certain names of "
    "the assistants. Be as objective as possible. \n"
    "Please directly output your final verdict by strictly following this format: "
    '"[[A]]" if assistant A is better, "[[B]]" if assistant B is better.\n\n'
    "[User Question]\n{question}\n\n"
    "[The Start of Assistant A's Answer]\n{answer_a}\n[The End of Assistant A's Answer]\n\n"
    "[The Start of Assistant B's Answer]\n{answer_b}\n[The End of Assistant B's Answer]\n"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgePreset:
    """A judge of the paper.

    Args:
        model: Model id on the Hugging Face hub.
        tensor_parallel: Number of 80 GB GPUs that share the model.
        template: Prompt of the judge.
    """

    model: str
    tensor_parallel: int
    template: PromptTemplate


_PAPER = PromptTemplate()

PRESETS: Mapping[str, JudgePreset] = MappingProxyType(
    {
        "qwen2.5-7b": JudgePreset(
            model="Qwen/Qwen2.5-7B-Instruct", tensor_parallel=1, template=_PAPER
        ),
        "qwen2.5-14b": JudgePreset(
            model="Qwen/Qwen2.5-14B-Instruct", tensor_parallel=1, template=_PAPER
        ),
        # 65 GB of 16-bit weights: one GPU would have almost no memory left for the KV cache.
        "qwen2.5-32b": JudgePreset(
            model="Qwen/Qwen2.5-32B-Instruct", tensor_parallel=2, template=_PAPER
        ),
        # 141 GB of 16-bit weights: two GPUs, as in the paper, leave almost no KV cache.
        "llama-3.1-70b": JudgePreset(
            model="meta-llama/Llama-3.1-70B-Instruct", tensor_parallel=4, template=_PAPER
        ),
        # The judge's answers begin with "[[": the prefill makes the label the next token.
        "skywork-critic-8b": JudgePreset(
            model="Skywork/Skywork-Critic-Llama-3.1-8B",
            tensor_parallel=1,
            template=PromptTemplate(system="", user=_SKYWORK_USER, prefill="[["),
        ),
    }
)
