"""GRPO for verl (0.9) without the responses that have no reward.

`scope_judge.verl.compute_score` scores these 0. With verl's own estimator the 0 counts, and is an
advantage among losses. Load this module with VERL_USE_EXTERNAL_MODULES=scope_judge.verl_advantage,
and choose it with algorithm.adv_estimator=scope_grpo.
"""

from collections import defaultdict
from importlib.util import find_spec
from typing import Any

import torch

__all__ = ["NAME", "scope_grpo"]

NAME = "scope_grpo"


def scope_grpo(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Any,
    epsilon: float = 1e-6,
    norm_adv_by_std_in_grpo: bool = True,
    config: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Verl's `compute_grpo_outcome_advantage` over the responses that have a reward.

    A reward against a reference is never 0, so 0 is a missing one; its advantage is 0, and that of
    a reward without another one in its group, too.

    Args:
        token_level_rewards: Shape (n, tokens).
        response_mask: Shape (n, tokens).
        index: Shape (n,). The group of each response.
        epsilon: Added to the deviation.
        norm_adv_by_std_in_grpo: Whether to divide by the deviation; `config` overrides it.
        config: verl's `algorithm` section.

    Raises:
        ValueError: A KL penalty is part of the rewards, so that 0 is no sign.
    """
    if config is not None:
        if config.get("use_kl_in_reward", False):
            raise ValueError(f"{NAME} needs algorithm.use_kl_in_reward=False: use a KL loss")
        norm_adv_by_std_in_grpo = config.get("norm_adv_by_std_in_grpo", norm_adv_by_std_in_grpo)
    with torch.no_grad():
        rewards = token_level_rewards.sum(dim=-1)
        groups = defaultdict[Any, list[int]](list)
        for place, group in enumerate(index):
            if rewards[place] != 0:
                groups[group].append(place)
        advantages = torch.zeros_like(rewards)
        for places in groups.values():
            if len(places) > 1:
                known = rewards[places]
                scale = known.std() + epsilon if norm_adv_by_std_in_grpo else 1.0
                advantages[places] = (known - known.mean()) / scale
        of_tokens = advantages.unsqueeze(-1) * response_mask
    return of_tokens, of_tokens


if find_spec("verl") is not None:
    from verl.trainer.ppo.core_algos import register_adv_est

    register_adv_est(NAME)(scope_grpo)
