"""NEUBAY's published settings, and its presets."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.methods import neubay
from jaxrl_rollouts.offline.methods.neubay import Neubay, NeubayMarkov
from jaxrl_rollouts.offline.neubay.posterior import PosteriorConfig, check_updates
from jaxrl_rollouts.offline.recipes import recipe

# Memory rate and weight of real timesteps, per dataset: the table of the paper's public code.
TABLE = {
    "halfcheetah": {"random": (3e-5, 0.8), "medium": (3e-5, 0.8), "medium-replay": (1e-5, 0.05),
                    "medium-expert": (3e-5, 0.8)},
    "hopper": {"random": (1e-5, 0.5), "medium": (1e-6, 0.8), "medium-replay": (3e-7, 0.5),
               "medium-expert": (3e-6, 0.5)},
    "walker2d": {"random": (3e-5, 0.5), "medium": (3e-6, 0.5), "medium-replay": (1e-6, 0.5),
                 "medium-expert": (1e-6, 0.8)},
}  # fmt: skip
NEORL = {
    "HalfCheetah": ((1e-5, 0.8), (3e-5, 0.5), (3e-5, 0.5)),
    "Hopper": ((3e-6, 0.8), (3e-6, 0.5), (3e-6, 0.5)),
    "Walker2d": ((3e-7, 0.5), (3e-7, 0.8), (3e-7, 0.8)),
}


@pytest.mark.parametrize("robot", TABLE)
def test_locomotion_has_the_papers_settings(robot: str) -> None:
    for quality, wanted in TABLE[robot].items():
        made = recipe("neubay", "paper", f"{robot}-{quality}-v2")
        agent = made.agent
        assert (agent.memory_lr, agent.real_weight) == wanted
        assert agent.learn_alpha is (robot != "hopper") and agent.initial_alpha == 0.2
        assert (made.steps, made.batch_size, made.buffer_size) == (2_000_000, 2048, 40_000_000)
        epochs = {"medium-replay": 10_000, "medium-expert": 600}.get(quality, 1200)
        assert made.world.max_epochs == epochs


@pytest.mark.parametrize("robot", NEORL)
def test_neorl_has_the_papers_settings(robot: str) -> None:
    for quality, wanted in zip(("low", "medium", "high"), NEORL[robot], strict=True):
        agent = recipe("neubay", "paper", f"{robot}-v3-{quality}-1000").agent
        assert (agent.memory_lr, agent.real_weight) == wanted
        assert agent.learn_alpha is (robot != "Hopper")


def test_mazes_and_hands_have_the_papers_settings() -> None:
    maze = recipe("neubay", "paper", "antmaze-medium-play-v2")
    assert maze.agent.reward_shift == -1 and maze.agent.target_entropy == -10 * 8
    assert (maze.steps, maze.agent.max_grad_norm, maze.agent.memory_lr) == (3_000_000, 1, 1e-5)
    hand = recipe("neubay", "paper", "pen-cloned-v1")
    assert hand.world.hidden_dims == (400,) * 4 and hand.agent.head_dims == (256,) * 3
    assert (hand.batch_size, hand.agent.real_weight, hand.world.max_epochs) == (1024, 0.8, 2400)


def test_class_defaults_are_the_papers() -> None:
    world = PosteriorConfig().ensemble
    assert (world.members, world.elites, world.hidden_dims) == (128, 100, (200,) * 4)
    assert (world.weight_decay, world.decay, world.max_epochs) == ((5e-5,), "decoupled", 1200)
    assert (world.log_var_low, world.log_var_high, world.bootstrap) == (-10.0, 0.5, False)
    assert recipe("neubay", "paper", "mine.hdf5") == Neubay()
    assert Neubay().agent.density == "exact"


def test_every_row_reads_and_can_be_trained() -> None:
    tables = tomllib.loads(Path(neubay.__file__).with_suffix(".toml").read_text("utf-8"))
    names = [f"{name}-v2" for name in tables["d4rl"]]
    assert len(names) == 12 + 4 + 3 and len(tables["neorl"]) == 9
    for name in names:
        check(recipe("neubay", "paper", name))


@pytest.mark.parametrize("preset", ["smoke", "small", "long", "paper"])
def test_presets_serve_episodes_of_a_thousand_steps(preset: Any) -> None:
    count = 3000
    ends = np.arange(1, count + 1) % 1000 == 0
    seen, zeros = np.zeros((count, 3), np.float32), np.zeros(count, np.float32)
    rows = Transitions(seen, zeros[:, None], zeros, seen, zeros > 0, ends)
    env = PENDULUM._replace(max_episode_steps=1000)
    own = recipe("neubay", preset)
    check_updates(own, rows, env)
    with pytest.raises(ConfigError, match="batch_size: found 1000, expected at least the 1001"):
        check_updates(replace(own, batch_size=1000), rows, env)


@pytest.mark.parametrize("preset", ["smoke", "small", "long"])
def test_the_markov_arm_differs_in_its_memory_and_rates_only(preset: str) -> None:
    own, without = recipe("neubay", preset), recipe("neubay_markov", preset)
    assert isinstance(without, NeubayMarkov) and without.markov and not own.markov
    assert without.agent.memory_lr == without.agent.head_lr
    assert without.agent.memory.width == own.agent.memory.width
    for name in ("steps", "batch_size", "buffer_size", "world", "rollouts", "utd_ratio"):
        assert getattr(own, name) == getattr(without, name)
    check(own)
    check(without)
