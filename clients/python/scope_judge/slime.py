"""Reward functions of slime (0.3): `--custom-rm-path scope_judge.slime.custom_rm`."""

import statistics
from collections.abc import Sequence
from typing import Any

from scope_judge.reward_settings import VARIABLES
from scope_judge.reward_source import Reward, RewardSource, flags_of, shared_source

__all__ = ["custom_rm", "normalized_rewards"]

# Attributes of slime's arguments, which `--custom-config-path` sets from a YAML file.
_PREFIX = "scope_"
_OPTIONS = (*VARIABLES, "rendered", "url", "api_key")
_MISSING = object()
_KEY = "reward"


async def custom_rm(args: Any, sample: Any) -> Any:
    """Rewards a sample against its label, or with `--group-rm` the samples of one prompt.

    slime has no value for "no reward". The reward is then 0 with a 1 beside it that says why, and
    the sample is taken out of the loss with `remove_sample`. `normalized_rewards` leaves it out of
    the group's mean, too.

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
    source = shared_source(**_options_of(args))
    if not isinstance(sample, list):
        return _answer(sample, await _against_label(source, sample))
    if args.group_rm:
        rewards = await _of_group(source, sample)
    else:
        # Several samples of one rollout, which do not answer one prompt.
        rewards = [await _against_label(source, one) for one in sample]
    return [_answer(one, reward) for one, reward in zip(sample, rewards, strict=True)]


def normalized_rewards(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Slime's normalisation of a group's rewards, without the samples that have no reward.

    It is for `--custom-reward-post-process-path scope_judge.slime.normalized_rewards`. A sample
    without a reward gets 0, the value of an average one, and is out of the loss.

    Args:
        args: slime's arguments.
        samples: All samples of a step.

    Returns:
        The rewards as they were, and normalised.
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
        known = [i for i in group if not _has_none(samples[i])]
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


def _has_none(sample: Any) -> bool:
    """Whether a sample has no reward."""
    return any(sample.reward.get(reason) for reason in flags_of(Reward(None, None)))


def _options_of(args: Any) -> dict[str, Any]:
    given = {name: getattr(args, _PREFIX + name, _MISSING) for name in _OPTIONS}
    options = {name: value for name, value in given.items() if value is not _MISSING}
    # slime's texts are what the policy reads and writes, with the markers of its chat template.
    return {"rendered": True, **options}


async def _against_label(source: RewardSource, sample: Any) -> Reward:
    if not isinstance(sample.label, str) or not sample.label.strip():
        raise ValueError(
            "a sample has no label, and its response is compared with it: name the column of the "
            "reference responses with --label-key, or compare the samples of a prompt with each "
            "other with --group-rm"
        )
    return await source.against_reference(sample.prompt, sample.response, sample.label)


async def _of_group(source: RewardSource, samples: Sequence[Any]) -> list[Reward]:
    if any(isinstance(sample, list) for sample in samples):
        raise ValueError(
            "a rollout has several samples, and --group-rm compares one response of each rollout: "
            "leave --group-rm out and give labels"
        )
    question = samples[0].prompt
    if any(sample.prompt != question for sample in samples):
        raise ValueError("the samples of a group have different prompts")
    return (await source.of_groups_async([(question, [sample.response for sample in samples])]))[0]


def _answer(sample: Any, reward: Reward) -> dict[str, float]:
    if reward.value is None:
        sample.remove_sample = True
    return {_KEY: reward.value or 0.0, **flags_of(reward)}
