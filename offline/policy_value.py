"""Model-based value of a policy without a simulator, by rollouts in world models.

Critics are biased estimates of it: pessimistic ones sink with training, others are wrong where no
row corrects them. Here rewards are summed until the rest counts for a hundredth. The value is right
as far as the models are; a spread of their members shows that it is not known.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.trees import row

from .choosing.played import possible, steps_of, values_in
from .data.transitions import RAW, discounted_steps
from .result import TrainResult
from .task import Source, starts_of, termination_of
from .worlds.dynamics import learned_dynamics
from .worlds.fit import FittedDataset

STARTS = 256  # rows that are rolled at least, of every seed


class ImaginedValue(NamedTuple):
    """Discounted values of the policies of all seeds, from where the dataset's episodes start.

    Attributes:
        value: `[seeds]`, the median over the elites with finite values: one may diverge.
        by_member: `[seeds, E]`, in each elite: their spread measures the model's uncertainty.
        away: `[seeds]`, number of diverged elites: a non-finite value, or one that is impossible
            with rewards within a range of those of the data.
    """

    value: np.ndarray
    by_member: np.ndarray
    away: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """Deviation over the elites, `[seeds]`."""
        return self.by_member.std(1)


def model_value(
    result: TrainResult, world: Source | None = None, *, seed: int = 0
) -> ImaginedValue:
    """Value of policies in world models: `sum_t gamma^t r_t` until `gamma^t` is a hundredth.

    Model-based evaluation of a policy without a simulator; every row stays in one elite, steps are
    sampled, and episodes end by the known rule or the learned one.

    Args:
        result: result of any method; a recurrent one gets its last action and reward.
        world: the models, of another outcome's `source` say; None takes the outcome's own. The
            policy of seed `k` is played in number `k % worlds`.
        seed: random seed.

    Raises:
        ConfigError: no world models.
    """
    world = result.source if world is None else world
    if not isinstance(world, FittedDataset):
        name = result.about["method"]
        raise ConfigError(
            "world", type(world).__name__, f"world models: {name} has none of its own"
        )
    if world.env.offset != result.source.env.offset:
        found = f"{world.dataset.name}, whose observations are less another offset"
        raise ConfigError("world", found, f"the offset of {result.about['dataset']}")
    elites, discount = world.config.elites, result.config.discount
    rule = world.ending or termination_of(world.dataset, world.env, world.config)
    model = learned_dynamics(world.fitted.model.fitter, elites, termination=rule).model
    first = starts_of(world.dataset, STARTS)
    each = max(STARTS // elites, -(-len(first) // elites))
    starts = jax.device_put(np.resize(first, (each * elites, first.shape[1])))
    horizon = steps_of(discount, world.env.max_episode_steps)
    shows = result.saved().remembers * world.dataset.transitions.actions.shape[1]
    count = jax.tree.leaves(world.fitted.worlds)[0].shape[0]
    found = []
    for number in range(jax.tree.leaves(result.actors)[0].shape[0]):
        key = jax.random.fold_in(as_key(seed, "seed"), number)
        values, *_ = values_in(
            model,
            row(world.fitted.worlds, number % count),
            result.agent.greedy,
            result.actor(number),
            result.agent.memory(len(starts)),
            starts,
            key,
            members=elites,
            discount=discount,
            horizon=horizon,
            shows=shows,
        )
        found.append(np.asarray(values).reshape(each, elites).mean(0))
    by_member = np.stack(found).astype(np.float64)  # bad models run away; their squares must not
    if world.reward != RAW:
        steps = discounted_steps(np.array([horizon]), np.array([True]), discount)
        by_member = world.reward.undo(by_member, steps).astype(np.float64)
    middle = [np.median(x[np.isfinite(x)]) if np.isfinite(x).any() else np.nan for x in by_member]
    low, high = possible(world.dataset.transitions.rewards, discount, horizon)
    stayed = (low <= by_member) & (by_member <= high)
    return ImaginedValue(np.asarray(middle), by_member, (~stayed).sum(1))
