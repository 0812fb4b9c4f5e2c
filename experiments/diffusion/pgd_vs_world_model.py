"""Guided diffusion or an autoregressive ensemble: who imagines a policy's rollouts more truly?

Policy-guided diffusion draws whole windows at once and pulls their actions towards a policy; an
ensemble rolls the policy itself, step after step. Both are fitted to the same data, and every step
they imagine is repeated in the true simulator: how likely are the actions under the policy, and how
wrong is the next state? On data that are broad, on data the policy leaves at once, and in MuJoCo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import jax
import numpy as np

from jaxrl_rollouts.configs import at_least_one
from jaxrl_rollouts.diffusion import (
    GuidanceConfig,
    SamplerConfig,
    TemporalUnetConfig,
    make_guidance,
)
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.synthetic.paths import open_loop_error, policy_gap, step_error
from jaxrl_rollouts.offline.synthetic.pgd import policy_target
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .budgets import windows_training
from .pgd_measured import Measured, Source
from .pgd_vs_world_model_cases import (
    ENSEMBLE,
    Case,
    CaseConfig,
    data_paths,
    ensemble_paths,
    make_drawing,
    prepare,
)
from .pgd_vs_world_model_claims import SOURCE
from .pgd_vs_world_model_page import make_report

RULES: Mapping[str, GuidanceConfig] = {
    "published": GuidanceConfig(),
    "published, noised": GuidanceConfig(reference="noised"),
    "calibrated": GuidanceConfig(rule="calibrated"),
    "calibrated, joint": GuidanceConfig(rule="calibrated", spread="joint"),
}


@dataclass(frozen=True)
class Config:
    """Datasets, coefficients and lengths.

    Attributes:
        broad, narrow, mujoco: the cases; None leaves one out.
        horizon: transitions per window of the diffusion model.
        long_horizon: how far the ensemble is rolled, to see where it loses what it had.
        windows: paths per seed and source.
        steps: of the sampler; also of every rule's sweep.
        many_steps: of a second sweep of the published rule; 0 for none.
        published, calibrated, joint: coefficients of those rules at `steps` (`joint` may be empty).
        published_many: coefficients at `many_steps`.
        noised: those at which the gradient is also taken at the noised sample.
        reference: the coefficient claims are about; one of `published`.
    """

    seeds: int = 4
    seed: int = 0
    broad: CaseConfig | None = field(default_factory=CaseConfig)
    narrow: CaseConfig | None = field(
        default_factory=lambda: CaseConfig("acrobot-narrow", rows=20_000)
    )
    mujoco: CaseConfig | None = field(
        default_factory=lambda: CaseConfig("jr/halfcheetah-medium", rows=0)
    )
    horizon: int = 32
    long_horizon: int = 128
    windows: int = 256
    steps: int = 32
    many_steps: int = 128
    published: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    published_many: tuple[float, ...] = (0.25, 0.5, 1.0, 4.0)
    calibrated: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)
    joint: tuple[float, ...] = ()
    noised: tuple[float, ...] = (1.0,)
    reference: float = 2.0

    def validate(self) -> None:
        at_least_one(self, "seeds", "horizon", "windows", "steps")
        if not self.cases():
            raise ConfigError("broad, narrow, mujoco", None, "at least one case")
        if self.long_horizon < self.horizon:
            expected = f"at least the horizon ({self.horizon})"
            raise ConfigError("long_horizon", self.long_horizon, expected)
        if self.reference not in self.published:
            raise ConfigError("reference", self.reference, f"one of published {self.published}")
        for name in ("published", "published_many", "calibrated", "joint", "noised"):
            found = getattr(self, name)
            if list(found) != sorted(set(found)) or (found and found[0] <= 0):
                raise ConfigError(name, found, "ascending, above 0")

    def cases(self) -> Mapping[str, CaseConfig]:
        """Those that are there, by their names."""
        every = {"broad": self.broad, "narrow": self.narrow, "mujoco": self.mujoco}
        return {name: case for name, case in every.items() if case is not None}

    def sweeps(self) -> list[tuple[str, int, tuple[float, ...]]]:
        """Rule, sampler steps and coefficients; 0 is unguided diffusion."""
        found = [
            ("published", self.steps, (0.0, *self.published)),
            ("published, noised", self.steps, self.noised),
            ("calibrated", self.steps, self.calibrated),
            ("calibrated, joint", self.steps, self.joint),
        ]
        if self.many_steps:
            found.append(("published", self.many_steps, (0.0, *self.published_many)))
        return [sweep for sweep in found if sweep[2]]


def measure(case: Case, paths: list[Transitions], key: jax.Array) -> Measured:
    """Every metric of one source's paths, one entry of the list per seed."""
    found = []
    for seed, own in enumerate(paths):
        actor = jax.tree.map(lambda x, seed=seed: x[seed], case.target.params)
        gap = np.asarray(policy_gap(case.target.gaussian, actor, own), np.float64)
        error = step_error(case.env, own, case.data, key)
        along = open_loop_error(case.env, own, case.data, key)
        found.append((gap.mean(0), error.mean(0), np.median(error, 0), along.mean(0)))
    return Measured(*(np.stack(column) for column in zip(*found, strict=True)))


def look(case: Case, config: Config, key: jax.Array) -> dict[Source, Measured]:
    """Draw from every source and measure it."""
    data_key, roll_key, draw_key, key = jax.random.split(key, 4)
    found = {
        Source("data"): measure(case, data_paths(case, data_key, config.windows), key),
        Source("ensemble"): measure(
            case, ensemble_paths(case, roll_key, config.windows, config.long_horizon), key
        ),
    }
    for rule, steps, coefficients in config.sweeps():
        guidance = make_guidance(policy_target(case.target.gaussian, case.layout), RULES[rule])
        draw = make_drawing(case, guidance, SamplerConfig(steps), config.windows)
        for coefficient, paths in zip(coefficients, draw(draw_key, coefficients), strict=True):
            source = Source(rule, steps, coefficient) if coefficient else Source("unguided", steps)
            found[source] = measure(case, paths, key)
    return found


def run(config: Config, context: RunContext) -> Report:
    """Fit, draw and measure every case; compare, draw."""
    report = Report.of(context, config.seeds)
    results: dict[str, tuple[Case, dict[Source, Measured]]] = {}
    for index, (name, case_config) in enumerate(config.cases().items()):
        fit_key, look_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), index))
        case = prepare(case_config, config.horizon, config.seeds, fit_key, context)
        results[name] = case, look(case, config, look_key)
        jax.clear_caches()  # programs of a finished case are not needed again
    make_report(report, config, results)
    return report


_TINY = CaseConfig(
    rows=1000, unet=TemporalUnetConfig(features=8, blocks=2),
    training=windows_training(20, batch=8),
    ensemble=EnsembleConfig(
        members=2, elites=2, hidden=(16,), weight_decay=(2.5e-5,), max_epochs=1
    ),
    agent=Td3BcConfig(hidden=(16,), alpha=10.0), agent_updates=20,
)  # fmt: skip
_BROAD = CaseConfig(
    training=windows_training(10_000), ensemble=replace(ENSEMBLE, max_epochs=12),
    agent_updates=10_000,
)  # fmt: skip

EXPERIMENT = Experiment(
    name="pgd_vs_world_model",
    summary="policy likelihood against dynamics error: guided diffusion and an ensemble",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(
            seeds=2, broad=_TINY, narrow=replace(_TINY, data="acrobot-narrow"), mujoco=None,
            horizon=8, long_horizon=10, windows=6, steps=4, many_steps=8, published=(1.0, 2.0),
            published_many=(0.5,), calibrated=(10.0,),
        ),
        "cpu": Config(
            windows=192, broad=_BROAD,
            narrow=replace(
                _BROAD, data="acrobot-narrow", rows=20_000, training=windows_training(6000),
                ensemble=replace(ENSEMBLE, max_epochs=60),
            ),
            mujoco=replace(_BROAD, data="jr/halfcheetah-medium", rows=0),
        ),
        "gpu": Config(
            seeds=8, windows=1024, joint=(1.0, 3.0, 10.0, 30.0, 100.0),
            broad=CaseConfig(
                unet=TemporalUnetConfig(features=128), training=windows_training(100_000),
                ensemble=replace(ENSEMBLE, max_epochs=100),
            ),
            narrow=CaseConfig(
                "acrobot-narrow", rows=20_000, unet=TemporalUnetConfig(features=128),
                training=windows_training(100_000), ensemble=replace(ENSEMBLE, max_epochs=100),
            ),
            mujoco=CaseConfig(
                "jr/halfcheetah-medium", rows=0, unet=TemporalUnetConfig(features=128),
                training=windows_training(100_000), ensemble=replace(ENSEMBLE, max_epochs=100),
                agent_updates=200_000,
            ),
        ),
        "paper": Config(
            broad=None, narrow=None, seeds=4, steps=256, many_steps=0, windows=1024, reference=1.0,
            published=(0.25, 0.5, 1.0, 2.0), published_many=(),
            mujoco=CaseConfig(
                "halfcheetah-medium-v2", rows=0,
                unet=TemporalUnetConfig(features=1024, time_scale=1.0),
                training=replace(
                    windows_training(500_000, batch=32), rate=2e-3, clip=None, average=0.995,
                    average_every=10,
                ),
                ensemble=EnsembleConfig(), agent_updates=1_000_000,
            ),
        ),
    },
    run=run,
)  # fmt: skip
