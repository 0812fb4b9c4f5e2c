"""How good a choice was, where the policies can be played after all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError

from ..data import Dataset
from ..evaluation import evaluate_seeds
from ..matching import EnvironmentLike, is_simulator, matched
from ..recurrent.histories import remembering
from . import scores
from .policies import Choosable, entries_of

if TYPE_CHECKING:
    from .choice import Choice


def true_values(
    policies: Sequence[Choosable],
    data: Dataset,
    episodes: int = 64,
    *,
    discount: float = 0.99,
    environment: EnvironmentLike | None = None,
    sampled: bool = False,
    best: bool = False,
    seed: int = 0,
) -> np.ndarray:
    """Play policies in the true environment: `J = E sum_t discount^t r_t`, `[P]`.

    Args:
        policies, data, best: as for `choose`, in the same order.
        episodes: episodes per policy.
        discount: that of the choice.
        environment: None takes the one that the data say they are from.
        sampled: draw actions, as `choose` does with `is` or `dr`; else the mean ones are played.
        seed: random seed of start states and samples.

    Raises:
        ConfigError: no simulator, or policies that do not fit.
    """
    data, env = matched(data, environment)
    if not is_simulator(env):
        raise ConfigError("environment", env.name, "a simulator, in which true values are measured")
    found = []
    for entry in entries_of(policies, data, sampled=sampled, best=best):
        count, memory = len(entry.names), entry.agent.memory(episodes)
        begun = jax.tree.map(lambda x, n=count: jnp.broadcast_to(x, (n, *x.shape)), memory)
        shown = remembering(env) if entry.remembers else env
        given = shown, entry.agent.policy, entry.actors, as_key(seed, "seed"), episodes
        played = evaluate_seeds(*given, memory=begun, discount=discount)
        found.append(np.asarray(played.discounted, np.float64).mean(1))
    return np.concatenate(found)


def scored(found: Choice, true: np.ndarray) -> dict[str, float]:
    """DOPE's metrics of a choice against true values `[P]`, of the policies that have an estimate.

    `width` is the factor that would have made the intervals' half-widths cover the choice's level
    of the values; `at random` the regret of a policy picked without looking.
    """
    known = [number for number, row in enumerate(found.table) if row.value == row.value]
    if len(known) < 2:
        raise ConfigError("policies", len(known), "at least 2 with an estimate, to be compared")
    values = np.asarray(true, np.float64)[known]
    columns = np.array([[r.value, r.low, r.high, r.fqe] for r in found.table])[known]
    estimates, low, high, fqe = columns.T
    metrics = {
        "policies": float(len(known)),
        "absolute error": scores.absolute_error(values, estimates),
        "rank correlation": scores.rank_correlation(values, estimates),
        "regret@1": scores.regret(values, estimates),
        "regret@1 at random": float((values.max() - values.mean()) / np.ptp(values)),
        "coverage": scores.interval_coverage(values, low, high),
        "interval score": scores.winkler_score(values, low, high, found.level),
        "width": scores.width_factor(values, estimates, low, high, found.level),
    }
    if np.isfinite(fqe).all():
        metrics["fqe: absolute error"] = scores.absolute_error(values, fqe)
        metrics["fqe: rank correlation"] = scores.rank_correlation(values, fqe)
        metrics["fqe: regret@1"] = scores.regret(values, fqe)
    return metrics
