"""From a dataset to trained NEUBAY agents, their policies on disk, and what is refused."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.ensemble import spread_of_means
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.critics import start_values
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.evaluation import evaluate
from jaxrl_rollouts.offline.method import Job
from jaxrl_rollouts.offline.methods.neubay import HistoryRollouts, Neubay
from jaxrl_rollouts.offline.neubay.learner import NeubayData, Sizes, buffer_text, make_neubay
from jaxrl_rollouts.offline.neubay.posterior import PosteriorConfig, check_updates, neubay_data
from jaxrl_rollouts.offline.recurrent.actor_critic import make_actor_critic
from jaxrl_rollouts.offline.recurrent.histories import log_histories, remembering
from jaxrl_rollouts.offline.recurrent.memory import MemoryConfig
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig
from jaxrl_rollouts.offline.task import Task
from jaxrl_rollouts.offline.training import evaluator, train_learner
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics
from jaxrl_rollouts.offline.worlds.fit import FittedWorlds, fit_world_models
from jaxrl_rollouts.offline.worlds.thresholds import threshold_at, uncertainty_stats_of_seeds

CONFIG = Neubay(
    agent=RecurrentSacConfig(
        memory=MemoryConfig("lru", width=8, state=4, layers=1),
        head_dims=(8,),
        num_critics=2,
    ),
    rollouts=HistoryRollouts(3, 6, 0.9, None),
    steps=4,
    per_iteration=2,
    batch_size=256,
    buffer_size=700,
)
NEUBAY = PosteriorConfig().ensemble
ENSEMBLE = replace(NEUBAY, members=3, elites=2, hidden_dims=(8,), max_epochs=1)


@functools.cache
def rows() -> Any:
    return pendulum_mixed(jax.random.key(0), 500)


@functools.cache
def fitted() -> FittedWorlds:
    return fit_world_models(ENSEMBLE, rows(), jax.random.key(1), seeds=2, targets="observations")


def lonely(worlds: Any) -> Any:
    """Ensembles of one member."""
    return worlds._replace(elites=jax.tree.map(lambda x: x[:, :1], worlds.elites))


@functools.cache
def stats() -> Any:
    return uncertainty_stats_of_seeds(fitted().model.fitter, fitted().worlds, rows())


class Ready(NamedTuple):
    """What `Neubay.prepare` hands to the loop, of worlds that are there already."""

    learner: Any
    data: NeubayData
    per_seed: NeubayData
    sizes: Sizes


def prepared(method: Neubay = CONFIG, **changes: Any) -> Ready:
    given: dict[str, Any] = {
        "transitions": rows(),
        "worlds": fitted().worlds,
        "stats": stats(),
        "env": PENDULUM,
        "seeds": 2,
        "source": "pendulum.hdf5",
        **changes,
    }
    check_updates(method, given["transitions"], PENDULUM, given["source"])
    data, per_seed, sizes = neubay_data(method, **given)
    members = jax.tree.leaves(given["worlds"].elites)[0].shape[1]
    settings: Any = {"disagreement": spread_of_means, "normalised": True}
    dynamics = learned_dynamics(fitted().model.fitter, members, termination=never, **settings)
    return Ready(make_neubay(method, dynamics, sizes), data, per_seed, sizes)


@functools.cache
def trained() -> tuple[Ready, Any]:
    ready = prepared()
    look = evaluator(ready.learner, remembering(PENDULUM), jax.random.key(2), 2)
    return ready, train_learner(
        ready.learner,
        ready.data,
        jax.random.key(3),
        seeds=2,
        iterations=CONFIG.schedule[0],
        per_seed=ready.per_seed,
        evaluate=look,
    )


@pytest.mark.slow
def test_values_of_first_tokens_are_those_of_a_fresh_memory() -> None:
    ready, result = trained()
    agent, states, settings = ready.learner.agent, result.state.agent, CONFIG.agent
    nets = make_actor_critic(settings.memory, settings.head_dims, settings.num_critics, 5, 1)
    timesteps = jax.random.normal(jax.random.key(0), (5, 5))
    found = start_values(agent, states, timesteps)
    one = jax.tree.map(lambda x: x[1], states)
    begin = jnp.ones(1, bool)
    each = []
    for timestep in timesteps:
        action, _ = agent.greedy(one.actor, jax.random.key(0), timestep[None], agent.memory(1))
        each.append(nets.q(one.critic, timestep[None], begin, action).mean())
    np.testing.assert_allclose(found[1], np.mean(each), rtol=1e-4)


def test_an_environment_shows_what_histories_show() -> None:
    """Timesteps of a dataset are what a policy is shown while it plays one."""
    seen = remembering(PENDULUM)
    assert seen is remembering(PENDULUM) and seen.observation_size == 5
    policy, key = random_policy(1), jax.random.key(4)
    plain = collect(PENDULUM, policy, None, key, episodes=2)
    shown = collect(seen, policy, None, key, episodes=2)
    timesteps = log_histories(plain).timesteps.observations
    kept = ~np.asarray(log_histories(plain).last)
    np.testing.assert_allclose(shown.observations, np.asarray(timesteps)[kept], atol=1e-5)
    np.testing.assert_allclose(shown.rewards, plain.rewards, atol=1e-5)
    returns = [evaluate(e, policy, None, key, 2).returns for e in (PENDULUM, seen)]
    np.testing.assert_allclose(*returns, rtol=1e-5)


@functools.cache
def own() -> tuple[Task, Job]:
    """A job with dynamics of its own: those fitted above, and the threshold of `CONFIG`."""
    settings: Any = {"disagreement": spread_of_means, "normalised": True}
    dynamics = learned_dynamics(fitted().model.fitter, 2, termination=never, **settings)
    limits = threshold_at(stats(), CONFIG.rollouts.uncertainty_quantile)
    worlds = fitted().worlds._replace(uncertainty_threshold=limits, others=None)
    data = Dataset("log", rows(), PENDULUM.name, Path("(made)"), "")
    return Task(data, PENDULUM), Job(seeds=2, dynamics=dynamics, world_models=worlds)


def test_dynamics_of_ones_own_are_what_an_ensemble_fitted_here_is() -> None:
    """The threshold replaces the quantile: the same learner, and the same data for every seed."""
    whole = replace(CONFIG, rollouts=replace(CONFIG.rollouts, uncertainty_quantile=1.0))
    made, fitted_here = whole.prepare(*own()), prepared()
    assert made.learner is fitted_here.learner and made.per_seed == fitted_here.per_seed
    want: Any = fitted_here.data._replace(
        world=fitted_here.data.world._replace(others=None), penalty=jnp.zeros(2)
    )
    jax.tree.map(np.testing.assert_array_equal, made.data, want)


@pytest.mark.parametrize(
    ("method", "job", "says"),
    [
        ({"penalty": 0.5}, {}, "penalty: found 0.5, expected 0"),
        ({"rollouts": HistoryRollouts(3, 6, 0.9)}, {}, "quantile: found 0.9, expected 1"),
        ({}, {"world_models": fitted}, "uncertainty_threshold: found None, expected a threshold"),
    ],
)
def test_dynamics_of_ones_own_have_no_spread_on_the_dataset(
    method: dict, job: dict, says: str
) -> None:
    task, whole = own()
    changed = {name: make().worlds for name, make in job.items()}
    sizes = replace(CONFIG, rollouts=HistoryRollouts(3, 6))
    with pytest.raises(ConfigError, match=says):
        replace(sizes, **method).prepare(task, replace(whole, **changed))


def test_an_ensemble_of_one_does_not_disagree() -> None:
    with pytest.raises(ConfigError, match="elites: found 1, expected at least 2: rollouts end"):
        prepared(worlds=lonely(fitted().worlds))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rollouts": HistoryRollouts(3, 6, 0.8)}, "quantile: found 0.8, expected one of"),
        (
            {"per_iteration": 20, "steps": 20},
            "per_iteration: found 20, expected at most 1[34], the gradient steps",
        ),
        ({"buffer_size": 300}, "buffer_size: found 300, expected at least 603 timesteps"),
    ],
)
def test_settings_that_the_dataset_refuses(wrong: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        prepared(replace(CONFIG, **wrong))


def test_rings_are_announced() -> None:
    ready = prepared()
    state = jax.eval_shape(ready.learner.init, jax.random.key(0), ready.data)
    room = 2 * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state.buffer)) / 1e6
    text = buffer_text(CONFIG, ready.sizes, 2)
    assert text == f"Tape buffers: 700 timesteps per seed, {room:,.0f} MB for 2 seeds."
