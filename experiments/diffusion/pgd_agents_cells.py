"""One agent on one source of data with one regulariser: train, play, look; see `pgd_agents`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts import loop
from jaxrl_rollouts.errors import DivergenceError
from jaxrl_rollouts.offline.agents.model_free import make_model_free
from jaxrl_rollouts.offline.agents.registry import AgentConfig
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.synthetic.paths import policy_gap
from jaxrl_rollouts.offline.synthetic.pgd import PgdData, make_pgd
from jaxrl_rollouts.offline.synthetic.quality import dynamics_error
from jaxrl_rollouts.offline.synthetic.synther import MixedData, mixing
from jaxrl_rollouts.offline.training import evaluator, train_learner
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from .pgd_agents_config import Config
from .pgd_agents_sources import Sources

LOOK = 4096  # rows of a source that are looked at


class Cell(NamedTuple):
    """One agent on one source with one regulariser; arrays are `[seeds]`.

    Attributes:
        returns, true_value, estimated_value: at the end; NaN where the training diverged.
        gap: mean squared distance of the source's actions from those of the final policy.
        dynamics: mean squared error of the source's next observations in the true simulator, in
            variances of the data, `[seeds]` (equal ones for a fixed set); None where the simulator
            cannot be set.
        curve: iterations `[points]` and returns `[seeds, points]`.
        terminations: share of the source's rows that end an episode.
    """

    returns: np.ndarray
    true_value: np.ndarray
    estimated_value: np.ndarray
    gap: np.ndarray
    dynamics: np.ndarray | None
    curve: tuple[np.ndarray, np.ndarray]
    terminations: float = 0.0


def train_cell(
    source: str, agent_config: AgentConfig, sources: Sources, config: Config,
    context: RunContext | None, stage: str,
) -> Cell:  # fmt: skip
    """Train `config.seeds` agents and look at them; a divergence makes a cell of NaN."""
    train_key, play_key, look_key = jax.random.split(
        jax.random.fold_in(jax.random.key(config.seed), 1), 3
    )
    try:
        trained, agent, rows = _train(
            source, agent_config, sources, config, context, stage, train_key, play_key
        )
    except DivergenceError:
        lost = np.full(config.seeds, np.nan)
        return Cell(lost, lost, lost, lost, None, (np.zeros(0), np.zeros((config.seeds, 0))))
    last = trained.history.last
    looked = some_rows(rows, look_key)
    at, returns = trained.history.curve("return")
    return Cell(
        last("return"), last("discounted_return"), last("estimated_value"),
        action_gap(agent, trained.state.agent.actor, looked), dynamics_of(sources, looked),
        (np.asarray(at), returns.T), float(rows.terminations.mean()),
    )  # fmt: skip


def _train(
    source: str, agent_config: AgentConfig, sources: Sources, config: Config,
    context: RunContext | None, stage: str, train_key: jax.Array, play_key: jax.Array,
) -> tuple[loop.Trained, Any, Transitions]:  # fmt: skip
    """What was trained, its agent, and the `[seeds or 1, N]` rows it was trained on last."""
    env = sources.env
    every = config.refreshes // config.evaluations
    if source == "guided":
        assert sources.denoiser is not None and sources.layout is not None
        pgd = make_pgd(config.pgd, agent_config, sources.denoiser, sources.layout)
        data = PgdData(sources.real, sources.params)
        trained = train_learner(
            pgd, data, train_key, seeds=config.seeds, iterations=config.refreshes, stage=stage,
            evaluate=evaluator(
                pgd, env, play_key, config.episodes, discount=agent_config.discount
            ),
            evaluate_every=every, context=context,
        )  # fmt: skip
        synthetic = trained.state.synthetic
        written = int(synthetic.size.min())
        return trained, pgd.agent, jax.tree.map(lambda x: x[:, :written], synthetic.rows)
    mixed: dict[str, Any] = {} if source == "real" else {"draw": mixing(config.real_share)}
    agent = make_model_free(
        agent_config, env.observation_size, env.action_size, batch_size=config.batch_size,
        updates_per_iteration=config.updates, **mixed,
    )  # fmt: skip
    rows = sources.fixed(source)
    data = rows if source == "real" else MixedData(sources.real, rows)
    trained = train_learner(
        agent, to_device(data), train_key, seeds=config.seeds, iterations=config.refreshes,
        evaluate=evaluator(
            agent, env, play_key, config.episodes, discount=agent_config.discount
        ),
        evaluate_every=every, stage=stage, context=context,
    )  # fmt: skip
    return trained, agent.agent, jax.tree.map(lambda x: x[None], rows)


def some_rows(rows: Transitions, key: jax.Array) -> Transitions:
    """`[seeds, LOOK]` of `[seeds, N]` rows, or all where they are no more.

    At random: every k-th could skip a step of all windows, such as the last, which terminates.
    """
    count = rows.rewards.shape[1]
    chosen = jax.random.permutation(key, count)[:LOOK]
    return jax.tree.map(lambda x: x[:, chosen], rows)


def action_gap(agent: Any, actors: PyTree, rows: Transitions) -> np.ndarray:
    """Mean of `(a - pi(s))^2` over rows and entries, `[seeds]`.

    Args:
        agent: whose `gaussian` is the policy.
        actors: `[seeds, ...]`.
        rows: `[seeds, N, ...]`, or `[1, N, ...]` where all seeds have the same.
    """

    def one(actor: PyTree, rows: Transitions) -> jax.Array:
        return policy_gap(agent.gaussian, actor, rows).mean()

    shared = rows.rewards.shape[0] == 1
    if shared:
        rows = jax.tree.map(lambda x: x[0], rows)
    return np.asarray(jax.jit(jax.vmap(one, (0, None if shared else 0)))(actors, rows))


def dynamics_of(sources: Sources, rows: Transitions) -> np.ndarray | None:
    """Error of next observations, `[seeds or 1]`; see `Cell.dynamics`."""
    if sources.env.set_observation is None or sources.env.host:
        return None
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
    error = dynamics_error(sources.env, flat, sources.real, jax.random.key(0))
    return error.next_observation.reshape(rows.rewards.shape).mean(1)
