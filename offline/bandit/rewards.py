"""What is logged of the bandits, and an ensemble's opinions of what the arms pay.

Arm 1 was never pulled: what the members believe of it comes from their initial weights, on
average less than arm 0 pays, and no two of them agree. That spread is the prior an agent explores
with, or is penalised for.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.ensemble import take_members
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.fit_data import split_holdout
from jaxrl_rollouts.fitting import FitState, elite_members, make_fitter
from jaxrl_rollouts.loop import Trained, train
from jaxrl_rollouts.record.context import RunContext

from .environment import ARMS, PULLS, Arms
from .optimum import Beliefs

# Wins of arm 0 in the ten episodes of 100 pulls that NEUBAY's authors ship: 494 of 1000.
WINS = (57, 50, 47, 45, 55, 44, 51, 44, 51, 50)

# NEUBAY's public code: log std between -5 and 0.25, so log variance between these.
REWARD_ENSEMBLE = EnsembleConfig(
    members=128,
    elites=100,
    hidden=(16, 16),
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
        config: architecture and optimisation; one epoch is one iteration of the loop.
        pulls: arms and rewards, `[n]` each.
        key: consumed; seed `i` uses `split(key, seeds)[i]`.
        seeds: how many ensembles.
        stage, context: as for `loop.train`.
    """
    arms, rewards = pulls
    inputs = np.eye(ARMS, dtype=np.float32)[arms]
    # The same holdout for all members and seeds.
    data = split_holdout(config, inputs, rewards[:, None].astype(np.float32), seed=42)
    fitter = make_fitter(config, ARMS, 1)
    trained = train(
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
