"""The bandits' log, an ensemble's predictions for the arms, and the exact optimum.

Arm 1 was never pulled: the members' beliefs of it come from their initial weights. Their spread is
the prior an agent explores with, or is penalised for. Optimal stopping under the same beliefs is
found by dynamic programming: arm 1's mean has a normal prior, arm 0 is known, and once arm 0 is
better it stays better, so the only question is when to stop pulling arm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import check, number, positive
from jaxrl_rollouts.ensemble import take_members
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.fit_data import split_holdout
from jaxrl_rollouts.fitting import FitState, elite_members, make_fitter
from jaxrl_rollouts.loop import Trained, train_loop
from jaxrl_rollouts.record.context import RunContext

from .bandit_task import ARMS, PULLS, Arms


@dataclass(frozen=True)
class Beliefs:
    """Prior of the planner, and what it plans for.

    Attributes:
        mean, std: those of arm 1's unknown mean; the defaults are typical of an ensemble.
        noise: standard deviation of a reward around that mean.
        known: reward of arm 0.
        pulls: pulls of an episode.
        discount: per pull.
        penalty: subtracted from the plan's rewards of arm 1, times `std` (conservatism).
    """

    mean: float = 0.30
    std: float = number(0.30, above=0)
    noise: float = number(0.5, above=0)
    known: float = 0.495
    pulls: int = positive(100)
    discount: float = number(1.0, above=0, most=1)
    penalty: float = 0.0


class Optimum(NamedTuple):
    """How a plan fares on true bandits, `[arms]` each."""

    returns: np.ndarray  # mean true reward per pull, undiscounted
    pulls: np.ndarray  # mean number of pulls of arm 1


def stopping_boundary(
    beliefs: Beliefs, *, points: int = 2001, half_width: float = 8.0, nodes: int = 40
) -> np.ndarray:
    """Posterior means below which arm 0 is pulled for the rest of the episode, `[pulls]`.

    Entry `n` is the boundary after `n` pulls of arm 1; `-inf` where one goes on at any mean, `inf`
    where one stops at any.
    """
    check(beliefs)
    b, n = beliefs, np.arange(beliefs.pulls)
    grid = b.mean + b.std * np.linspace(-half_width, half_width, points)
    x, weight = np.polynomial.hermite_e.hermegauss(nodes)
    weight = weight / weight.sum()
    variance = 1.0 / (1.0 / b.std**2 + n / b.noise**2)
    # The posterior mean moves by this much (standard deviation) with the next reward.
    move = variance / np.sqrt(variance + b.noise**2)
    left = np.arange(b.pulls, 0, -1)
    stay = b.known * np.array([(b.discount ** np.arange(k)).sum() for k in left])
    boundary, value = np.empty(b.pulls), np.zeros(points)
    for t in reversed(range(b.pulls)):
        after = np.interp(grid[:, None] + move[t] * x, grid, value) @ weight
        go = grid - b.penalty * b.std + b.discount * after
        better = go > stay[t]
        if better.all() or not better.any():
            boundary[t] = -np.inf if better.all() else np.inf
        else:
            above = int(np.argmax(better))
            gain = (go - stay[t])[above - 1 : above + 1]
            boundary[t] = np.interp(0.0, gain, grid[above - 1 : above + 1])
        value = np.maximum(go, stay[t])
    return boundary


def play_optimum(
    beliefs: Beliefs,
    arms: tuple[float, ...],
    *,
    known: float = 0.5,
    boundary: np.ndarray | None = None,
) -> Optimum:
    """Expected play of the stopping rule on Bernoulli bandits, exactly.

    The posterior mean depends on the number of pulls and of wins only, so the chances of all
    (pulls, wins) at which one still goes on are a small table.
    """
    b = beliefs
    boundary = stopping_boundary(b) if boundary is None else boundary
    p = np.asarray(arms, float)
    wins = np.arange(b.pulls + 1)
    going = np.zeros((len(p), b.pulls + 1))
    going[:, 0] = 1.0
    pulls = np.zeros(len(p))
    for t in range(b.pulls):
        precision = 1.0 / b.std**2 + t / b.noise**2
        mean = (b.mean / b.std**2 + wins / b.noise**2) / precision
        going = np.where(mean > boundary[t], going, 0.0)
        pulls += going.sum(1)
        moved = going * (1.0 - p[:, None])
        moved[:, 1:] += going[:, :-1] * p[:, None]
        going = moved
    return Optimum((pulls * p + (b.pulls - pulls) * known) / b.pulls, pulls)


# Wins of arm 0 in the ten episodes of 100 pulls that NEUBAY's authors ship: 494 of 1000.
WINS = (57, 50, 47, 45, 55, 44, 51, 44, 51, 50)

# NEUBAY's public code: log std between -5 and 0.25, so log variance between these.
REWARD_ENSEMBLE = EnsembleConfig(
    members=128,
    elites=100,
    hidden_dims=(16, 16),
    activation="leaky_relu",
    layer_norm=True,
    initialiser="uniform",
    biases="uniform",
    learned_bounds=False,
    log_var_low=-10.0,
    log_var_high=0.5,
    bootstrap=False,
    lr=1e-3,
    weight_decay=(1e-4,),
    decay="decoupled",
    batch_size=128,
    max_epochs=500,
    patience=5,
    selection_metric="nll",
    improvement=1e-3,
    holdout_fraction=0.2,
)


class FittedRewards(NamedTuple):
    """Reward ensembles of several seeds.

    Attributes:
        arms: `Arms` with a leading seed axis, penalty 0; members are the elites, best first.
        nll: `[seeds, E]` holdout likelihood of the elites, nats.
        trained: history and times of the fit.
    """

    arms: Arms
    nll: np.ndarray
    trained: Trained

    def beliefs(self, seed: int, penalty: float = 0.0) -> Beliefs:
        """A seed's opinions, their mean and spread, as the prior of optimal stopping."""
        mean, std = (np.asarray(x[seed]) for x in (self.arms.mean, self.arms.std))
        known, unknown = (float(mean[:, arm].mean()) for arm in (0, 1))
        spread, noise = float(mean[:, 1].std()), float(std[:, 1].mean())
        return Beliefs(unknown, spread, noise, known, pulls=PULLS, penalty=penalty)


def logged_pulls(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Arms `[1000]` int32 (all 0) and rewards `[1000]` float32 with the published wins.

    The order of wins within an episode is drawn from `seed`.
    """
    generator = np.random.default_rng(seed)
    episodes = [generator.permutation(np.arange(PULLS) < wins) for wins in WINS]
    rewards = np.concatenate(episodes).astype(np.float32)
    return np.zeros(len(rewards), np.int32), rewards


def fit_rewards(
    config: EnsembleConfig,
    pulls: tuple[np.ndarray, np.ndarray],
    key: jax.Array,
    *,
    seeds: int = 1,
    stage: str = "rewards",
    context: RunContext | None = None,
) -> FittedRewards:
    """Fit `seeds` independent ensembles to the same pulls, side by side.

    Args:
        pulls: arms and rewards, `[n]` each.
    """
    arms, rewards = pulls
    inputs = np.eye(ARMS, dtype=np.float32)[arms]
    # The same holdout for all members and seeds.
    data = split_holdout(config, inputs, rewards[:, None].astype(np.float32), seed=42)
    fitter = make_fitter(config, ARMS, 1)
    trained = train_loop(
        fitter.update,
        fitter.init,
        jax.random.split(key, seeds),
        data,
        iterations=config.max_epochs,
        stage=stage,
        unit="epochs",
        finished=fitter.finished,
        context=context,
    )

    def opinions(state: FitState) -> tuple[Arms, jax.Array]:
        elites = elite_members(state, config.elites)
        params = take_members(state.best, elites)
        mean, log_var = fitter.ensemble.apply_all(params, jnp.eye(ARMS))
        mean, std = mean[..., 0], jnp.exp(0.5 * log_var[..., 0])
        return Arms(mean, std, mean.std(0), jnp.float32(0)), state.best_loss[elites]

    beliefs, nll = jax.jit(jax.vmap(opinions))(trained.state)
    return FittedRewards(beliefs, np.asarray(nll), trained)


def penalised(arms: Arms, penalty: float) -> Arms:
    """The same opinions, with `penalty` times the spread taken from what is learned from."""
    return arms._replace(penalty=jnp.full_like(arms.penalty, penalty))
