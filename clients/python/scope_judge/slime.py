"""Reward functions of slime (0.3): `--custom-rm-path scope_judge.slime.custom_rm`."""

import logging
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scope_judge.comparisons import Group
from scope_judge.reward_settings import VARIABLES
from scope_judge.reward_source import (
    REASONS,
    Reward,
    RewardSource,
    flags_of,
    metrics_of,
    shared_source,
)

__all__ = ["custom_rm", "log_rollout", "normalized_rewards"]

logger = logging.getLogger("scope_judge")

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

    With `scope_reference: true`, samples of `--group-rm` are also compared with their labels.

    Args:
        args: slime's arguments. `--reward-key reward` is needed, because a reward is an object.
        sample: A sample; a list of them with `--group-rm`.

    Returns:
        `{"reward": 0.5, "abstained": 0, ...}`, or a list of these. `won` and `lost` are 1 if the
        comparison with the label was accepted, and are missing without one.

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
        return (await _with_labels(source, [sample]))[0]
    if not args.group_rm:
        # Several samples of one rollout, which do not answer one prompt.
        return await _with_labels(source, sample)
    is_compared = getattr(args, _PREFIX + "reference", False)
    return await _of_group(source, sample, with_labels=is_compared)


def log_rollout(
    rollout_id: int,
    args: Any,
    samples: Sequence[Any],
    rollout_extra_metrics: dict[str, Any] | None,
    rollout_time: float,
) -> bool:
    """Adds `scope_judge/win_rate`, `scope_judge/coverage` and the reasons to slime's metrics.

    It is for `--custom-rollout-log-function-path scope_judge.slime.log_rollout`.

    Args:
        rollout_id: Number of the rollout.
        args: slime's arguments.
        samples: All samples of the rollout.
        rollout_extra_metrics: The metrics that slime logs; None if the rollout function of the
            user gives none, and the metrics are then a line of the log.
        rollout_time: Seconds of the rollout.

    Returns:
        False, so that slime logs its own metrics, too.
    """
    found = [sample.reward for sample in samples]
    rewards = [Reward(each[_KEY], _reason(each)) for each in found]
    compared = [each["won"] - each["lost"] for each in found if "won" in each]
    metrics = metrics_of(rewards, [Reward(each or None, None) for each in compared])
    if rollout_extra_metrics is None:
        logger.info("rollout %s: %s", rollout_id, metrics)
    else:
        rollout_extra_metrics.update(metrics)
    return False


def _reason(answer: Mapping[str, Any]) -> str | None:
    return next((reason for reason in REASONS if answer.get(reason)), None)


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
        known = [i for i in group if _reason(samples[i].reward) is None]
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


async def _with_labels(source: RewardSource, samples: Sequence[Any]) -> list[dict[str, float]]:
    """Rewards samples against their labels."""
    answers = await source.of_groups_async(list(map(_labelled, samples)))
    return [
        {**_answer(sample, reward), **_result(reward)}
        for sample, (reward,) in zip(samples, answers, strict=True)
    ]


async def _of_group(
    source: RewardSource, samples: Sequence[Any], *, with_labels: bool
) -> list[dict[str, float]]:
    """Rewards the samples of one prompt against each other."""
    if any(isinstance(sample, list) for sample in samples):
        raise ValueError(
            "a rollout has several samples, and --group-rm compares one response of each rollout: "
            "leave --group-rm out and give labels"
        )
    question = samples[0].prompt
    if any(sample.prompt != question for sample in samples):
        raise ValueError("the samples of a group have different prompts")
    group: Group = (question, [sample.response for sample in samples])
    labelled = list(map(_labelled, samples)) if with_labels else []
    rewards, *compared = await source.of_groups_async([group, *labelled])
    answers = [_answer(*both) for both in zip(samples, rewards, strict=True)]
    for answer, (reward,) in zip(answers, compared, strict=with_labels):
        answer |= _result(reward)
    return answers


def _labelled(sample: Any) -> Group:
    """A response that is compared with its label."""
    if not isinstance(sample.label, str) or not sample.label.strip():
        raise ValueError(
            "a sample has no label, and its response is compared with it: name the column of the "
            "reference responses with --label-key, or compare the samples of a prompt with each "
            "other with --group-rm"
        )
    return sample.prompt, [sample.response], sample.label


def _answer(sample: Any, reward: Reward) -> dict[str, float]:
    if reward.value is None:
        sample.remove_sample = True
    return {_KEY: reward.value or 0.0, **flags_of(reward)}


def _result(reward: Reward) -> dict[str, float]:
    """The result of an accepted comparison with a label as two numbers, which trainers can log."""
    value = reward.value or 0.0
    return {"won": int(value > 0), "lost": int(value < 0)}
