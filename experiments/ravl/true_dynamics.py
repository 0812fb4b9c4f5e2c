"""Methods that penalise model error get worse as the model gets better; RAVL does not.

One number w goes from the learned model (0) to the true step (1); penalties that come from the
model's error shrink with it and are zero at 1. On the plane of `edge_of_reach_toy` and on a
standard environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import jax

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fitting import EnsembleConfig
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.methods.scheme import ModelBasedConfig
from jaxrl_rollouts.plugins import Experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.reports.report import Report

from .true_dynamics_cells import DialConfig, complete, open_domain, turn_dial
from .true_dynamics_page import SOURCE, make_report


@dataclass(frozen=True)
class Config:
    """Model qualities and environments.

    Attributes:
        truths: weights of the true step at which every method is trained; must hold 0 and 1.
        ravl_truths: those at which RAVL is (it costs five times as much).
        plane, standard: the two environments; None leaves the second out.
    """

    seeds: int = positive(5)
    seed: int = 0
    truths: tuple[float, ...] = (0.0, 0.5, 0.9, 1.0)
    ravl_truths: tuple[float, ...] = (0.0, 0.5, 0.9, 1.0)
    plane: DialConfig = field(default_factory=DialConfig)
    standard: DialConfig | None = field(
        default_factory=lambda: DialConfig(environment="gymnax/Pendulum-v1")
    )

    def validate(self) -> None:
        for name in ("truths", "ravl_truths"):
            weights = getattr(self, name)
            if weights != (0.0, *sorted({*weights} - {0.0, 1.0}), 1.0):
                raise ConfigError(name, weights, "ascending weights from 0 to 1")

    def of_method(self) -> Mapping[str, tuple[float, ...]]:
        """Weights at which each method is trained; at 1 a penalty is zero and base stands in."""
        below = tuple(w for w in self.truths if w < 1.0)
        return {"base": self.truths, "mopo": below, "mobile": below, "ravl": self.ravl_truths}


def run(config: Config, context: RunContext) -> Report:
    """Turn the dial on both environments, compare, draw."""
    results = {}
    for index, part in enumerate((config.plane, config.standard)):
        if part is None:
            continue
        open_key, key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), index))
        domain = open_domain(part, open_key)
        dials = turn_dial(domain, config.of_method(), config.seeds, key, context)
        results[domain.env.name] = domain, complete(dials, config.truths)
    return make_report(Report.of(context, config.seeds), results)


# fmt: off
_TINY = DialConfig(
    rows=400, mopo_penalties=(1.0,), mobile_samples=1, epochs=2, evaluations=1, episodes=4,
    ensemble=EnsembleConfig(2, 2, (16,), weight_decay=(2.5e-5,), max_epochs=1),
    agent=SacConfig(hidden=(16,)),
    rollouts=ModelBasedConfig(
        horizon=3, rollouts_per_epoch=50, updates_per_epoch=3, batch_size=16
    ),
)
_PLANE = DialConfig(
    mopo_penalties=(0.5, 2.0), mobile_samples=1, epochs=120,
    ensemble=EnsembleConfig(5, 3, (64, 64), weight_decay=(2.5e-5,), max_epochs=20),
    rollouts=ModelBasedConfig(
        horizon=7, rollouts_per_epoch=1000, updates_per_epoch=500, batch_size=128, real_share=0.0
    ),
)
_PENDULUM = replace(
    _PLANE, environment="gymnax/Pendulum-v1", rows=10_000, mopo_penalties=(1.0, 5.0), epochs=30,
    ensemble=replace(_PLANE.ensemble, max_epochs=100),
    agent=SacConfig(
        hidden=(64, 64), polyak=0.01, actor_rate=1e-3, critic_rate=1e-3, temperature_rate=1e-3
    ),
    rollouts=replace(_PLANE.rollouts, horizon=5, real_share=0.5),
)
# fmt: on

EXPERIMENT = Experiment(
    name="true_dynamics",
    summary="MOPO and MOBILE get worse as the model gets better, RAVL does not",
    source=SOURCE,
    config_type=Config,
    presets={
        "smoke": Config(2, 0, (0.0, 1.0), (0.0, 1.0), _TINY, None),
        # Six seeds: three on each of two cores.
        "cpu": Config(6, 0, (0.0, 0.5, 1.0), (0.0, 1.0), _PLANE, _PENDULUM),
        "paper": Config(seeds=10),
    },
    run=run,
)
