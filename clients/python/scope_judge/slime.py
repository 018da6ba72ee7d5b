"""Reward functions of slime (0.3): `--custom-rm-path scope_judge.slime.custom_rm`."""

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from scope_judge.comparisons import Group
from scope_judge.reward_source import REASONS, VARIABLES, flags_of, shared_source

__all__ = ["custom_rm", "normalized_rewards"]

# Attributes of slime's arguments, which `--custom-config-path` sets from a YAML file.
_PREFIX = "scope_"
_OPTIONS = (*VARIABLES, "rendered", "url", "api_key")
_MISSING = object()
_KEY = "reward"


async def custom_rm(args: Any, sample: Any) -> Any:
    """Rewards a sample against its label, or with `--group-rm` the samples of one prompt.

    slime has no value for "no reward". The reward is then 0 with a 1 beside it that says why, and
    `remove_sample` excludes the sample from the loss. `normalized_rewards` leaves it out of the
    group's mean, too.

    Args:
        args: slime's arguments. `--reward-key reward` is needed, because a reward is an object.
        sample: A sample; a list of them with `--group-rm`.

    Returns:
        `{"reward": 0.5, "abstained": 0, ...}`, or a list of these.

    Raises:
        ValueError: An option is missing or wrong, or a sample has no reference.
        ScopeError: There are no rewards.
    """
    if args.reward_key != _KEY:
        raise ValueError(
            "start slime with --reward-key reward: the reward is an object that also says why "
            "there is none"
        )
    samples = sample if isinstance(sample, list) else [sample]
    # Several samples of one rollout, without --group-rm, do not answer one prompt.
    is_group = isinstance(sample, list) and args.group_rm
    groups = [_group(samples)] if is_group else list(map(_labeled, samples))
    found = await shared_source(**_options_of(args)).of_groups_async(groups)
    answers = []
    for one, reward in zip(samples, itertools.chain(*found), strict=True):
        if reward.value is None:
            one.remove_sample = True
        answers.append({_KEY: reward.value or 0.0, **flags_of(reward)})
    return answers if isinstance(sample, list) else answers[0]


def normalized_rewards(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Slime's normalization of a group's rewards, without the samples that have no reward.

    It is for `--custom-reward-post-process-path scope_judge.slime.normalized_rewards`. A sample
    without a reward gets 0, the value of an average one, and is out of the loss.

    Returns:
        The rewards as they were, and normalized.
    """
    raw = [float(sample.get_reward_value(args)) for sample in samples]
    divided = args.advantage_estimator in ("grpo", "gspo", "cispo")
    if not args.rewards_normalization or not (
        divided or args.advantage_estimator == "reinforce_plus_plus_baseline"
    ):
        return raw, raw
    groups: dict[Any, list[int]] = {}
    for i, sample in enumerate(samples):
        groups.setdefault(sample.group_index, []).append(i)
    normalized = [0.0] * len(raw)
    for group in groups.values():
        known = [i for i in group if not any(map(samples[i].reward.get, REASONS))]
        values = [raw[i] for i in known]
        scaled = _normalized(values, divided=divided and args.grpo_std_normalization)
        for i, value in zip(known, scaled, strict=True):
            normalized[i] = value
    return raw, normalized


def _normalized(values: Sequence[float], *, divided: bool) -> list[float]:
    mean = statistics.fmean(values) if values else 0.0
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    scale = deviation + 1e-6 if divided else 1.0
    return [(value - mean) / scale for value in values]


def _options_of(args: Any) -> dict[str, Any]:
    given = {name: getattr(args, _PREFIX + name, _MISSING) for name in _OPTIONS}
    options = {name: value for name, value in given.items() if value is not _MISSING}
    # slime's texts are what the policy reads and writes, with the markers of its chat template.
    return {"rendered": True, **options}


def _group(samples: Sequence[Any]) -> Group:
    """The responses to one prompt, which are compared with each other."""
    if any(isinstance(sample, list) for sample in samples):
        raise ValueError(
            "a rollout has several samples, and --group-rm compares one response of each rollout: "
            "leave --group-rm out and give labels"
        )
    if any(sample.prompt != samples[0].prompt for sample in samples):
        raise ValueError("the samples of a group have different prompts")
    return samples[0].prompt, [sample.response for sample in samples]


def _labeled(sample: Any) -> Group:
    """A response that is compared with its label."""
    if not isinstance(sample.label, str) or not sample.label.strip():
        raise ValueError(
            "a sample has no label, and its response is compared with it: name the column of the "
            "reference responses with --label-key, or compare the samples of a prompt with each "
            "other with --group-rm"
        )
    return sample.prompt, [sample.response], sample.label
