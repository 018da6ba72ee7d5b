"""A response without a reward has no advantage in verl, and is not in its group's baseline."""

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from scope_judge.verl_advantage import scope_grpo  # noqa: E402


def advantages(rewards: list[float], groups: list[str], **options: Any) -> list[float]:
    """The advantage of each response, whose reward is on the last of its three tokens."""
    tokens = torch.zeros(len(rewards), 4)
    tokens[:, 2] = torch.tensor(rewards)
    mask = torch.tensor([[1.0, 1.0, 1.0, 0.0]]).expand(len(rewards), 4)
    found, returns = scope_grpo(tokens, mask, groups, **options)
    assert torch.equal(found, returns)
    assert torch.equal(found[:, 3], torch.zeros(len(rewards)))
    assert torch.equal(found[:, 0], found[:, 2])
    values: list[float] = found[:, 0].tolist()
    return values


def test_an_abstention_among_losses_has_no_advantage() -> None:
    assert advantages([-1.0] * 5 + [0.0], ["q"] * 6) == [0.0] * 6


def test_the_baseline_is_that_of_the_known_rewards() -> None:
    # By hand: (1, -1, -1) has the mean -1/3 and the deviation sqrt(4/3); the 0 is left out.
    rewards, groups = [1.0, 0.0, -1.0, -1.0, 1.0, 0.0], [*"aaaa", *"bb"]
    deviation = math.sqrt(4 / 3)
    by_hand = [4 / 3, 0.0, -2 / 3, -2 / 3]
    # The only reward of a group has nothing to be compared with.
    scaled = [value / deviation for value in by_hand] + [0.0, 0.0]
    assert advantages(rewards, groups) == pytest.approx(scaled, abs=1e-5)
    plain = {"norm_adv_by_std_in_grpo": False}
    assert advantages(rewards, groups, config=plain) == pytest.approx([*by_hand, 0.0, 0.0])


def test_a_penalty_in_the_rewards_is_refused() -> None:
    with pytest.raises(ValueError, match="use_kl_in_reward=False"):
        advantages([1.0, -1.0], ["q"] * 2, config={"use_kl_in_reward": True})


def test_without_missing_rewards_it_is_verls_own_estimator() -> None:
    algorithms = pytest.importorskip("verl.trainer.ppo.core_algos")
    generator = torch.Generator().manual_seed(1)
    rewards = torch.rand(64, 5, generator=generator)
    mask = torch.ones(64, 5)
    index = [f"group {i % 8}" for i in range(64)]
    for norm in (True, False):
        options: dict[str, Any] = {"norm_adv_by_std_in_grpo": norm}
        theirs = algorithms.compute_grpo_outcome_advantage(rewards, mask, index, **options)
        ours = scope_grpo(rewards, mask, index, **options)
        assert torch.allclose(ours[0], theirs[0], atol=1e-6)
    assert algorithms.get_adv_estimator_fn("scope_grpo") is scope_grpo
