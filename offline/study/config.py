"""What a comparison of methods shares: world model, agent, evaluation; and MuJoCo's budgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import jax

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig

from ..agents.sac import SacConfig
from ..methods.registry import MethodConfig, Mobile, Mopo
from ..methods.scheme import ModelBasedConfig
from ..worlds.endings import TerminationConfig
from ..worlds.fit import Targets


@dataclass(frozen=True)
class StudyConfig:
    """World model, agent and evaluation; the same for every method of a comparison.

    Attributes:
        seeds: runs side by side, each with its own networks and random numbers.
        seed: of the random numbers; the same one gives the same numbers.
        ensemble: the world model and how it is fitted.
        targets: units in which it learns changes and rewards: each standardised (`change`), as
            they are (`raw`), or changes in deviations of the `observations` (NEUBAY).
        shared_world: fit one world model and give it to every seed; else each seed has its own.
        termination: where an episode ends in the model: by the `known` rule of the environment, or
            by a `learned` classifier, fitted to the dataset's own terminals, which also takes
            the rule's place where none is known.
        ending: the classifier of a learned termination.
        agent: the actor-critic that learns in the model.
        rollouts: lengths and numbers of model rollouts, and updates between them.
        methods: settings of single methods.
        tuning: every dataset has the settings of `methods` and `rollouts` (`shared`), or those
            that public codes chose for it, where they did (`published`).
        epochs: rounds of model rollouts followed by updates.
        evaluations: looks at the policy in the true environment, spread evenly over the training,
            at whole iterations; fewer where there are fewer of those.
        episodes: played at each look, per seed.
        error_horizon: steps over which the world model's open-loop error is reported.
    """

    seeds: int = positive(3)
    seed: int = 0
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    targets: Targets = "change"
    shared_world: bool = False
    termination: Literal["known", "learned"] = "known"
    ending: TerminationConfig = field(default_factory=TerminationConfig)
    agent: SacConfig = field(default_factory=SacConfig)
    rollouts: ModelBasedConfig = field(default_factory=ModelBasedConfig)
    methods: MethodConfig = field(default_factory=MethodConfig)
    tuning: Literal["shared", "published"] = "shared"
    epochs: int = positive(100)
    evaluations: int = positive(5)
    episodes: int = positive(10)
    error_horizon: int = positive(50)


# What MuJoCo studies take to show that they run.
SMOKE_MUJOCO = StudyConfig(
    seeds=2,
    ensemble=EnsembleConfig(hidden=(32,), weight_decay=(2.5e-5,), batch_size=1024, max_epochs=1),
    shared_world=True,
    agent=SacConfig(hidden=(32,)),
    rollouts=ModelBasedConfig(rollouts_per_epoch=200, updates_per_epoch=10),
    epochs=2,
    evaluations=1,
    episodes=1,
    error_horizon=20,
)
# On a CPU: networks as small as serve, and targets four times as fast as the papers', so that
# 200 000 gradient steps are 40 time constants of the critics. Half the batch is real, one of RAVL's
# two values.
CPU_MUJOCO = StudyConfig(
    seeds=4,
    ensemble=EnsembleConfig(
        hidden=(128, 128, 128),
        weight_decay=(2.5e-5,),
        batch_size=512,
        max_epochs=30,
        input_clip=10.0,
    ),
    agent=SacConfig(hidden=(64, 64), tau=0.02, initial_alpha=0.1),
    rollouts=ModelBasedConfig(rollouts_per_epoch=4_000, updates_per_epoch=1000, real_ratio=0.5),
    methods=MethodConfig(mopo=Mopo(unit="mean"), mobile=Mobile(min_target=0.0)),
    epochs=200,
    evaluations=20,
    episodes=20,
)


def keys_of(seed: int) -> tuple[jax.Array, jax.Array]:
    """Of a study: for the training, and for the `evaluator`; the same for every method."""
    train_key, play_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1))
    return train_key, play_key
