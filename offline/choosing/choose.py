"""Choose among trained policies from a log alone: values, intervals, a check, a verdict.

    found = offline.choose([result, load_policy("runs/..."), ("mine", act)], dataset)
    print(found)
    found.trials(3)

Values are `J = E sum_t gamma^t r_t` from where the log's episodes start. The interval of a gain
over the data widens by what the same estimator gets wrong of the log's own parts, whose returns are
known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import numpy as np

from jaxrl_rollouts.configs import SEED, check, positive, unknown
from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record.context import RunContext

from ..data import Dataset
from ..fitted_q import FqeConfig
from ..matching import matched
from ..task import check_rewards, slug
from ..worlds.fit import WorldModelConfig
from . import estimates
from .choice import Choice
from .clones import clone
from .dice import by_corrections
from .estimates import Estimate
from .importance import by_importance
from .models import Models, fit_models
from .policies import Choosable, Entry, entries_of
from .verdict import deciding, headline, table_of

Estimator = Literal["models", "fqe", "is", "dr", "dice"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
NETWORKS = WorldModelConfig(
    members=6, elites=6, hidden_dims=(64,) * 3, variance="output", input_clip=10.0, max_epochs=30
)


@dataclass(frozen=True)
class ChooseConfig:
    """Settings of the estimators.

    Attributes:
        models: world models, an even number of members, all of them elites; half of them see each
            half of the episodes.
        fqe: settings of fitted Q evaluation.
        clone_steps: gradient steps of the clones of the log's parts.
        episodes: largest number of the log's episodes used as start states and returns.
        draws: bootstrap samples.
    """

    models: WorldModelConfig = NETWORKS
    fqe: FqeConfig = FqeConfig(steps=10_000, tau=0.03, lr=1e-3, batch_size=128)
    clone_steps: int = positive(3000)
    episodes: int = positive(128)
    draws: int = positive(1000)


PRESETS = {
    "smoke": ChooseConfig(
        replace(NETWORKS, hidden_dims=(32,), max_epochs=3, members=4, elites=4, batch_size=512),
        FqeConfig(members=3, hidden_dims=(32,), steps=1000, tau=0.3, lr=1e-3, batch_size=64),
        clone_steps=500,
        episodes=16,
    ),
    "small": ChooseConfig(),
    "long": ChooseConfig(
        replace(NETWORKS, members=10, elites=10, hidden_dims=(200,) * 4, max_epochs=100),
        FqeConfig(hidden_dims=(256, 256), steps=100_000, tau=0.005),
        clone_steps=20_000,
        episodes=512,
    ),
}


def choose(
    policies: Sequence[Choosable],
    data: Dataset,
    estimators: Sequence[Estimator] = ("models", "fqe"),
    *,
    config: ChooseConfig | str = "small",
    models: Models | str | Path | None = None,
    level: float = 0.9,
    discount: float | None = None,
    best: bool = False,
    seed: int = 0,
    context: RunContext | None = None,
) -> Choice:
    """Off-policy evaluation: which policies are better than the log, without a simulator.

    Args:
        policies: results of `train` (all seeds), `load_policy` or `read_policy` of runs, or
            `(name, function)` from observations `[B, S]` to actions `[B, A]` in their own units.
        data: the log; its rewards are what is counted.
        estimators: `models`, world models, for any policy; `fqe`, for those without a memory; `is`
            and `dr`, for those with a density, whose actions are drawn then; `dice`, for those
            without a memory. The first of `models`
            and `fqe` gives the interval and the verdict; `fqe` does where the models fail the check
            on the data's own parts and it passes.
        config: settings, or the name of some: smoke, small, long.
        models: those of an earlier choice of this log, or a folder that keeps them.
        level: level of the intervals.
        discount: None takes that of the trainings; 1 sums rewards as they are (`models` alone).
        best: use the policies of the best evaluations, for results and runs.
        seed: random seed.
        context: a run whose folder keeps checkpoints.

    Raises:
        ConfigError: an estimator that does not exist or lacks another, or policies that do not fit.
        DataError: a log without rewards or with too few episodes.
    """
    if isinstance(config, str):
        if config not in PRESETS:
            raise unknown("config", config, PRESETS)
        config = PRESETS[config]
    check(config)
    SEED.check("seed", seed)
    _check_estimators(estimators, level, discount)
    check_rewards(data, "choose")
    if data.rows_file is not None:
        raise ConfigError("data", "rows on disk", "rows in memory", "stream='never' reads them")
    data, env = matched(data, "none")
    sampled = bool({"is", "dr"} & set(estimators))
    entries = entries_of(policies, data, sampled=sampled, best=best)
    gamma = _discount(entries, discount)
    rng = np.random.default_rng(seed)
    log = estimates.cut(data, gamma, config.episodes, config.draws, rng)
    clone_key = jax.random.fold_in(as_key(seed, "seed"), 2**31)
    part = np.repeat(log.part, estimates.episodes(data.transitions).lengths)
    made: dict[str, Any] = {"steps": config.clone_steps, "context": context}
    made["stage"] = f"{slug(data.name)}-choose-clones"
    clones = clone(data.transitions, part, clone_key, **made)
    found: dict[str, Estimate] = {}
    if "models" in estimators:
        if not isinstance(models, Models):
            folder = None if models is None else Path(models)
            given: Any = {"seed": seed, "folder": folder, "context": context}
            models = fit_models(data, env, config.models, log.half, **given)
        found["models"] = estimates.by_models(log, models, clones, entries, seed)
    critics = None
    if "fqe" in estimators:
        fqe = replace(config.fqe, discount=gamma)
        critics = estimates.fit_critics(log, clones, entries, fqe, seed, context)
        found["fqe"] = estimates.by_critics(log, critics, entries, seed)
    weighed: dict[str, Any] = {
        name: by_importance(log, clones, entries, None if name == "is" else critics)
        for name in ("is", "dr")
        if name in estimators
    }
    if "dice" in estimators:
        weighed["dice"] = by_corrections(log, entries, seed), None
    kept = models if isinstance(models, Models) else None
    found, note = deciding(found, log, kept)
    table, checked, behaviour = table_of(log, entries, found, weighed, kept, level)
    name, first = next(iter(found.items()))
    more: Any = {"discount": gamma, "level": level, "data": data.name, "estimator": name}
    more |= {"note": note, "draws": first.draws, "models": kept, "over_time": first.over_time}
    return Choice(table, headline(table), behaviour, checked, **more)


def _check_estimators(
    estimators: Sequence[Estimator], level: float, discount: float | None
) -> None:
    for name in estimators:
        if name not in ESTIMATORS:
            raise unknown("estimators", name, ESTIMATORS)
    if not {"models", "fqe"} & set(estimators):
        expected = "models or fqe among them: the others have no interval"
        raise ConfigError("estimators", list(estimators), expected)
    if "dr" in estimators and "fqe" not in estimators:
        raise ConfigError("estimators", list(estimators), "fqe as well: dr corrects its critics")
    if not 0 < level < 1:
        raise ConfigError("level", level, "a number above 0 and below 1")
    if discount is not None and not 0 <= discount <= 1:
        raise ConfigError("discount", discount, "a number from 0 to 1")
    if discount == 1 and set(estimators) != {"models"}:
        raise ConfigError("discount", discount, "below 1, or models as the only estimator")


def _discount(entries: Sequence[Entry], discount: float | None) -> float:
    """The given one, else that which all trainings share."""
    if discount is not None:
        return discount
    own = sorted({entry.discount for entry in entries if entry.discount is not None})
    if len(own) > 1:
        raise ConfigError(
            "discount", own, "one number", "values of different discounts do not compare"
        )
    return own[0] if own else 0.99
