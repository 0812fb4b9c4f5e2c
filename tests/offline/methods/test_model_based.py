"""The model-based agent's epoch: what is rolled, kept, mixed and learned from."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.data import Dataset, Transitions
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.method import Job
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.model_based import Given, Imagination, Rollouts, bind
from jaxrl_rollouts.offline.methods.mopo import Mopo
from jaxrl_rollouts.offline.task import Task
from jaxrl_rollouts.offline.training import train_learner
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, EliteSamples
from jaxrl_rollouts.rollouts import Model, step_result
from jaxrl_rollouts.trees import equations

S, A = 2, 1
CADENCE: dict[str, Any] = {"length": 3, "batch_size": 10, "retain_epochs": 2, "every": 2}
METHOD = Base(
    agent=SacConfig(num_critics=2, eta=0.0, hidden_dims=(8,)),
    rollouts=Rollouts(**CADENCE),
    batch_size=8,
    real_ratio=0.25,
)
OWN_WORLDS = Imagination(False, True, False, False)


def step(world: Any, key: Any, s: Any, a: Any, member: Any) -> tuple:
    following = s + world + a + 0.1 * jax.random.normal(key, s.shape)
    fell = following[:, 0] > 1.0
    return following, step_result(len(s), reward=following[:, 1], terminated=fell)


DYNAMICS = Dynamics(Model(step), lambda *_: EliteSamples(*[jnp.zeros(1)] * 3), 2)


@functools.cache
def dataset() -> Transitions:
    rng = np.random.default_rng(0)
    s, n = (jnp.asarray(rng.normal(size=(30, S)), jnp.float32) for _ in range(2))
    a, r = jnp.asarray(rng.uniform(-1, 1, (30, A)), jnp.float32), jnp.ones((30,))
    return Transitions(s, a, r, n, jnp.zeros(30, bool), jnp.zeros(30, bool))


@functools.cache
def built() -> Any:
    return bind(METHOD.program(), DYNAMICS, S, A)


@functools.cache
def jitted_update() -> Any:
    return jax.jit(built().update)


@functools.cache
def jitted_imagine() -> Any:
    return jax.jit(built().imagine)


def data(world: Any = 0.0) -> Imagination:
    return Imagination(dataset(), jnp.broadcast_to(jnp.asarray(world), (S,)), {}, jnp.ones(()))


def start(seed: int = 0) -> Any:
    return built().init(jax.random.key(seed), data())


def rows_of(trajectory: Any) -> set:
    """Observations, actions and rewards of the valid steps, hashable."""
    valid = np.asarray(trajectory.valid)
    parts = [np.asarray(x)[valid] for x in trajectory.steps[:3]]
    return {tuple(np.hstack(row).round(4).tolist()) for row in zip(*parts, strict=True)}


def held(buffer: Any) -> list:
    size = int(buffer.size)
    parts = [np.asarray(x)[:size] for x in buffer.rows[:3]]
    return [tuple(np.hstack(row).round(4).tolist()) for row in zip(*parts, strict=True)]


def test_the_buffer_holds_the_valid_rows_of_each_epoch() -> None:
    state, written = start(), set()
    assert int(state.imagined.size) == 0 and state.imagined.capacity == 2 * 10 * 3
    for _ in range(2):
        trajectory = jitted_imagine()(state, jax.random.split(state.key, 3)[0], data())
        assert 0 < int(trajectory.valid.sum()) < 30  # some rows end early
        written |= rows_of(trajectory)
        state, metrics = jitted_update()(state, data())
        rows = held(state.imagined)
        assert len(rows) == len(set(rows)) == len(written) and set(rows) == written
        np.testing.assert_allclose(metrics["imagined_length"], trajectory.lengths.mean(), rtol=1e-5)
        mean = np.asarray(trajectory.steps.rewards)[np.asarray(trajectory.valid)].mean()
        np.testing.assert_allclose(metrics["imagined_reward"], mean, rtol=1e-4, atol=1e-6)


def test_only_the_newest_epochs_are_kept() -> None:
    never_ends = data(-5.0)  # so that every rollout fills its share of the buffer
    state = built().init(jax.random.key(0), never_ends)
    epochs = []
    for _ in range(4):
        trajectory = jitted_imagine()(state, jax.random.split(state.key, 3)[0], never_ends)
        assert trajectory.valid.all()
        epochs.append(rows_of(trajectory))
        state, _ = jitted_update()(state, never_ends)
        assert set(held(state.imagined)) == set().union(*epochs[-2:])


def test_rollouts_start_in_the_dataset_and_follow_the_policy() -> None:
    trajectory = jitted_imagine()(start(), jax.random.key(1), data())
    starts = {tuple(s) for s in dataset().observations.tolist()}
    assert {tuple(s) for s in trajectory.steps.observations[0].tolist()} <= starts
    assert trajectory.steps.actions.shape == (3, 10, A)
    assert set(np.unique(trajectory.steps.members)) == {0, 1}


class Known(NamedTuple):
    """A world that drifts by the member's number and says how far from the origin it is."""

    uncertainty_threshold: Any


def drift(world: Known, key: Any, s: Any, a: Any, member: Any) -> tuple:
    following = s + 0.5 * (1 + member[:, None])
    return following, step_result(len(s), uncertainty=jnp.abs(s).max(-1))


MEASURED = Dynamics(Model(drift), lambda *_: EliteSamples(*[jnp.zeros(1)] * 3), 2)


def adaptive(limit: Any, **cadence: Any) -> Any:
    more = {"length": 12, "adaptive": True, "member": "trajectory"}
    method = replace(METHOD, rollouts=Rollouts(**(CADENCE | more | cadence)))
    agent = bind(method.program(), MEASURED, S, A)
    known = Imagination(dataset(), Known(limit), {}, jnp.ones(()))
    return agent.imagine(agent.init(jax.random.key(0), known), jax.random.key(1), known)


def test_adaptive_rollouts_end_with_the_step_that_is_lost() -> None:
    found = adaptive(jnp.float32(2.0))
    valid, lost = np.asarray(found.valid), np.asarray(found.steps.uncertainties) > 2.0
    lengths = np.asarray(found.lengths)
    assert len(set(lengths.tolist())) > 2 and lengths.max() < 12
    for row, length in enumerate(lengths):
        assert lost[length - 1, row] and not lost[: length - 1, row].any()
        assert found.steps.truncations[length - 1, row]  # kept, and bootstrapped from
        assert len(set(np.asarray(found.steps.members)[valid[:, row], row])) == 1
    assert not found.steps.terminations.any()
    assert set(np.asarray(found.steps.members)[0]) == {0, 1}
    early = adaptive(jnp.float32(2.0), early_exit=4)
    jax.tree.map(np.testing.assert_array_equal, found.steps, early.steps)
    endless = adaptive(jnp.inf)
    assert endless.valid.all() and endless.valid.shape[0] == 12


def test_dynamics_of_ones_own_have_what_a_method_reads_of_them() -> None:
    """Without a measure MOPO would be base in silence; where the truth is rolled zero is right."""
    env = make("pendulum")
    rows = Dataset("toy", dataset(), "pendulum", Path("(made)"), "")

    def prepare(method: Any, dynamics: Any, worlds: Any = ()) -> Any:
        return method.rolled_models(Task(rows, env), Job(dynamics=dynamics, world_models=worlds))

    far = replace(METHOD, rollouts=Rollouts(**CADENCE, adaptive=True))
    unmeasured = MEASURED._replace(measured=False)
    for method, name in ((Mopo(), "mopo"), (far, "base")):
        with pytest.raises(ConfigError, match=f"a measure of uncertainty, which {name} reads"):
            prepare(method, unmeasured)
    with pytest.raises(
        ConfigError, match=r"world_models.uncertainty_threshold: found None, expected a threshold"
    ):
        prepare(far, MEASURED, Known(None))
    with pytest.raises(ConfigError, match="penalty_scale: found 'mean', expected raw"):
        prepare(Mopo(penalty_scale="mean"), DYNAMICS)
    assert prepare(METHOD, unmeasured)[0] is unmeasured
    assert prepare(Mopo(), DYNAMICS)[0] is DYNAMICS


def test_seeds_side_by_side_are_single_runs() -> None:
    keys = jnp.stack([jax.random.key(1), jax.random.key(2)])
    worlds = Imagination(dataset(), jnp.array([[0.1] * S, [0.2] * S]), {}, jnp.ones(()))
    both = train_loop(
        built().update,
        built().init,
        keys,
        worlds,
        per_seed=OWN_WORLDS,
        iterations=2,
        stage="agent",
    )
    for i in range(2):
        state = start(i + 1)
        for _ in range(2):
            state, metrics = jitted_update()(state, data(0.1 * (i + 1)))
        mine = jax.tree.map(lambda x, i=i: x[i], both.state)
        for a, b in ((mine.agent, state.agent), (mine.imagined, state.imagined)):
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-4), a, b)
        loss = both.history.last("critic_loss")[i]
        np.testing.assert_allclose(loss, metrics["critic_loss"], rtol=1e-3)


def test_each_seed_is_trained_in_its_world() -> None:
    worlds = jnp.array([[-5.0, 0.0], [5.0, 0.0]])  # the second one always ends at once
    rows = Imagination(dataset(), worlds, {}, jnp.ones(()))
    trained = train_learner(
        built(), rows, jax.random.key(0), seeds=2, iterations=1, per_seed=OWN_WORLDS
    )
    assert trained.history.last("imagined_length").tolist() == [3.0, 1.0]
    kernels = trained.state.agent.actor["Dense_0"]["kernel"]
    assert (kernels[0] != kernels[1]).all()


SEEN: list = []


@dataclass(frozen=True, kw_only=True)
class Looking(Base):
    """Base that writes down what its batches are made of: dataset rows earn exactly one."""

    def learn(self, state: Any, given: Given, **moves: bool) -> Any:
        def look(ours: Any, theirs: Any) -> None:
            SEEN.append((len(ours), int(np.sum(ours == 1)), len(theirs), int(np.sum(theirs == 1))))

        jax.debug.callback(look, given.real.rewards, given.imagined.rewards)
        return super().learn(state, given, **moves)


@pytest.mark.parametrize("share", [pytest.param(0.0, marks=pytest.mark.slow), 0.25, 1.0])
def test_the_share_of_dataset_rows(share: float) -> None:
    SEEN.clear()
    method = Looking(agent=METHOD.agent, rollouts=METHOD.rollouts, batch_size=8, real_ratio=share)
    agent = bind(method.program(), DYNAMICS, S, A)
    _, metrics = jax.jit(agent.update)(start(), data())
    jax.block_until_ready(metrics)
    jax.effects_barrier()
    real = round(share * 8)
    assert [(real, real, 8 - real, 0)] * CADENCE["every"] == SEEN
    assert all(np.isfinite(x) for x in metrics.values())


def test_an_epoch_has_no_branches() -> None:
    """Under vmap a `cond` computes both of its branches: rollouts would be paid for twice."""
    program = jax.make_jaxpr(built().update)(start(), data()).jaxpr
    names = {equation.primitive.name for equation in equations(program)}
    assert {"scan", "dot_general"} <= names
    assert "cond" not in names


def test_equal_settings_share_their_functions() -> None:
    again = replace(METHOD, rollouts=Rollouts(**CADENCE), steps=7)
    assert bind(again.program(), DYNAMICS, S, A) is built()


def test_an_epoch_holds_whole_periods_of_the_agent() -> None:
    """TD3's actor moves every other step, so an epoch of three gradient steps has two."""
    env, seen = make("pendulum"), dataset()
    rows = seen._replace(observations=jnp.zeros((30, 3)), next_observations=jnp.zeros((30, 3)))
    task = Task(Dataset("toy", rows, "pendulum", Path("(made)"), ""), env)
    method = Base(
        agent=Td3BcConfig(hidden_dims=(8,)), steps=9, rollouts=Rollouts(**CADENCE | {"every": 3})
    )
    made = method.prepare(task, Job(dynamics=DYNAMICS))
    assert (made.iterations, made.learner.per_iteration) == (4, 2)
