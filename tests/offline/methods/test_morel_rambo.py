"""MOReL's pessimistic MDP and RAMBO's adversary, in a linear world whose numbers are known."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxrl_rollouts.configs import coefficients
from jaxrl_rollouts.gaussian import Gaussian
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.methods.base import Base
from jaxrl_rollouts.offline.methods.model_based import (
    Imagination,
    Learning,
    ModelBased,
    Rollouts,
    bind,
)
from jaxrl_rollouts.offline.methods.morel import Morel
from jaxrl_rollouts.offline.methods.rambo import Rambo, log_prob
from jaxrl_rollouts.offline.worlds.dynamics import Dynamics, EliteSamples, Rolled
from jaxrl_rollouts.rollouts import Model, Step, rollout, step_result

S, A, E, B = 2, 1, 2, 64
SAC = SacConfig(hidden_dims=(8,))
CADENCE: dict[str, Any] = {
    "agent": SAC,
    "rollouts": Rollouts(length=3, batch_size=8, retain_epochs=1, every=2),
    "batch_size": 8,
    "real_ratio": 0.5,
}


class WorldModelParams(NamedTuple):
    """Members whose change and reward do not depend on anything: `[E, S + 1]`."""

    elites: Any
    uncertainty_threshold: Any = None


def predict(world: WorldModelParams, s: jax.Array, a: jax.Array) -> Gaussian:
    mean = jnp.broadcast_to(world.elites[:, None], (E, len(s), S + 1))
    return Gaussian(mean, 0.5 * jnp.ones_like(mean))


def sample_elites(world: WorldModelParams, key: Any, s: jax.Array, a: jax.Array) -> EliteSamples:
    drawn = predict(world, s, a).sample(key)
    return EliteSamples(drawn[..., -1], s + drawn[..., :-1], jnp.zeros((E, len(s)), bool))


def step(world: WorldModelParams, key: Any, s: jax.Array, a: jax.Array, member: Any) -> tuple:
    change = world.elites[member]
    return s + change[:, :-1], step_result(
        len(s), reward=change[:, -1], uncertainty=jnp.abs(s[:, 0])
    )


LINEAR = Dynamics(Model(step), sample_elites, E, True, predict)
ELITES = jnp.array([[0.1, 0.0, 1.0], [-0.1, 0.0, 1.0]])


@functools.cache
def rows() -> Transitions:
    rng = np.random.default_rng(0)
    s, a = rng.normal(size=(B, S)), rng.uniform(-1, 1, (B, A))
    columns = (s, a, np.ones(B), s + [0.0, 0.0])
    floats = (jnp.asarray(x, jnp.float32) for x in columns)
    return Transitions(*floats, jnp.zeros(B, bool), jnp.zeros(B, bool))


def measured(method: ModelBased, world: WorldModelParams) -> tuple[Any, dict]:
    own = {name: jnp.float32(value) for name, value in coefficients(method).items()}
    learner = bind(method.program(), LINEAR, S, A)
    data = Imagination(rows(), world, own, jnp.ones(()))
    return jax.jit(learner.update)(learner.init(jax.random.key(0), data), data)


def an_epoch(method: ModelBased, world: WorldModelParams) -> Any:
    return measured(method, world)[0]


def same(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def test_where_everything_is_known_morel_is_base() -> None:
    base = an_epoch(Base(**CADENCE), WorldModelParams(ELITES, jnp.inf))
    morel = an_epoch(Morel(**CADENCE), WorldModelParams(ELITES, jnp.float32(jnp.inf)))
    assert same(base.agent, morel.agent) and same(base.imagined, morel.imagined)


def test_an_unknown_step_is_rewarded_halt_and_ends() -> None:
    """Once, as the last step of its rollout; what was known before it is as it was."""
    kept = an_epoch(
        Morel(halt=-7.0, **CADENCE), WorldModelParams(ELITES, jnp.float32(0.5))
    ).imagined
    held = jax.tree.map(lambda x: np.asarray(x[: int(kept.size)]), kept.rows)
    unknown = np.abs(held.observations[:, 0]) > 0.5
    assert 0 < unknown.sum() < len(unknown)
    np.testing.assert_allclose(held.rewards, np.where(unknown, -7.0, 1.0))
    np.testing.assert_array_equal(held.terminations, unknown)
    imagined = Morel(halt=-7.0, **CADENCE | {"real_ratio": 0.0})
    after, metrics = measured(imagined, WorldModelParams(ELITES, jnp.float32(-1.0)))
    nothing = after.imagined
    assert int(nothing.size) == 8 and (nothing.rows.rewards[:8] == -7.0).all()
    # Nothing follows, so the value of what is unknown is the halt's reward.
    assert float(metrics["target_mean"]) == -7.0


@pytest.mark.parametrize(("halt", "avoided"), [(-20.0, True), (0.5, True), (2.0, False)])
def test_an_unknown_edge_is_taken_if_halting_is_worth_more_than_staying(
    halt: float, avoided: bool
) -> None:
    """One state: to stay pays 0.1 for ever, a value of 1; the edge pays 10 and is unknown."""

    def edge(world: Any, key: Any, s: jax.Array, a: jax.Array, member: Any) -> tuple:
        leaves = a[:, 0] > 0
        reward, unsure = jnp.where(leaves, 10.0, 0.1), 1.0 * leaves
        return s, step_result(len(s), reward=reward, uncertainty=unsure)

    world = WorldModelParams(ELITES, jnp.float32(0.5))
    both = rollout(
        Model(edge),
        world,
        jnp.zeros((2, S)),
        jax.random.key(0),
        horizon=1,
        policy=lambda params, key, s, memory: (jnp.array([[1.0], [-1.0]]), memory),
    )
    found, valid = Morel(halt=halt).rows(both, Rolled(LINEAR, world, jnp.ones(())))
    assert valid.all()
    rewards, alive = np.asarray(found.rewards), 1.0 - np.asarray(found.terminations)
    values = np.zeros(2)  # of the edge and of staying
    for _ in range(200):
        values = rewards + 0.9 * alive * values.max()
    np.testing.assert_allclose(values[0], halt, rtol=1e-6)
    np.testing.assert_allclose(values[1], 0.1 + 0.9 * max(1.0, halt), rtol=1e-5)
    assert (values.argmax() == 1) == avoided


def test_without_an_adversary_rambo_is_base_bit_for_bit() -> None:
    world = WorldModelParams(ELITES)
    base = an_epoch(Base(**CADENCE), world)
    rambo = an_epoch(Rambo(adversary=0.0, adversary_steps=3, **CADENCE), world)
    assert same(base.agent, rambo.agent) and same(base.imagined, rambo.imagined)
    np.testing.assert_array_equal(rambo.extra.world.elites, ELITES)
    moved = an_epoch(Rambo(adversary=1.0, adversary_steps=3, **CADENCE), world)
    assert (np.asarray(moved.extra.world.elites) != np.asarray(ELITES)).any()


def outcomes(world: WorldModelParams, key: Any, s: jax.Array, a: jax.Array, member: Any) -> tuple:
    """A step sampled from `predict`, whose reward is 1."""
    drawn = predict(world, s, a).sample(key)[member, jnp.arange(len(s)), :-1]
    return s + drawn, step_result(len(s), reward=jnp.ones(len(s)))


SAMPLED = LINEAR._replace(model=Model(outcomes))


def imagined(count: int = B) -> Step:
    """Imagined steps whose changes and rewards are random."""
    rng = np.random.default_rng(1)
    s, change, a = rng.normal(size=(count, S)), rng.normal(size=(count, S)), rng.uniform(-1, 1, B)
    s, after, a, r = (jnp.asarray(x, jnp.float32) for x in (s, s + change, a[:, None], a))
    no = jnp.zeros(count, bool)
    return Step(s, a, r, after, no, no, jnp.zeros(count), no, ~no)


def test_the_adversary_lowers_what_is_worth_more() -> None:
    """Critics that value the first coordinate: its change falls, and more so the heavier lambda."""
    agent = SAC.make(S, A)
    valued = agent._replace(q=lambda critic, s, a: jnp.broadcast_to(3.0 * s[:, 0], (2, len(s))))
    state = agent.init(jax.random.key(1))
    world = Rolled(LINEAR, WorldModelParams(ELITES), jnp.ones(()))
    taken, changes = imagined(), []
    gain = Rambo(**CADENCE).advantage(valued, state, jax.random.key(3), taken)
    for weight in (0.01, 1.0, 3.0):
        method = Rambo(adversary=weight, **CADENCE)
        gradient, _ = jax.grad(method.model_loss, has_aux=True)(ELITES, rows(), taken, gain, world)
        changes.append(float(gradient[:, 0].mean()))  # a step goes against it
    assert changes[0] < changes[1] < changes[2] and changes[1] > 0.05


def test_of_two_outcomes_the_adversary_makes_the_better_one_as_rare_as_the_data_allow() -> None:
    """One state; what follows is worth 1 above zero and 0 below. Data have no change.

    With `z = mu / sigma` the loss is stationary where `z = -lambda phi(z) / sqrt(Phi(z) Phi(-z))`:
    `phi(z) / sigma` is the derivative of the better outcome's probability `Phi(z)`, and the root is
    the deviation by which advantages are standardised.
    """
    agent = SAC.make(S, A)
    valued = agent._replace(q=lambda critic, s, a: jnp.broadcast_to(s[:, 0] > 0, (2, len(s))) * 1.0)
    nowhere = jnp.zeros((B, S))
    data = rows()._replace(observations=nowhere, next_observations=nowhere)
    method = Rambo(**CADENCE, adversary_lr=3e-3, adversary_steps=500)
    method = replace(method, rollouts=Rollouts(length=1), batch_size=256)
    begun = WorldModelParams(jnp.zeros((E, S + 1)).at[:, -1].set(1.0))
    world = Rolled(SAMPLED, begun, jnp.ones(()))

    def moved(weight: jax.Array) -> jax.Array:
        own = replace(method, adversary=weight)
        extra = own.begin(valued, jax.random.key(0), Imagination(data, begun, {}, jnp.ones(())))
        state = Learning(agent.init(jax.random.key(1)), extra)
        return own.before(valued, state, jax.random.key(2), data, world).extra.world.elites

    weights, normal = np.array([0.3, 1.0, 2.0]), scipy.stats.norm
    found = np.asarray(jax.jit(jax.vmap(moved))(jnp.asarray(weights, jnp.float32)))
    want = np.zeros(3)
    for _ in range(200):
        root = np.sqrt(normal.cdf(want) * normal.cdf(-want))
        want = 0.5 * (want - weights * normal.pdf(want) / root)
    np.testing.assert_allclose(found[:, :, 0].mean(1) / 0.5, want, atol=0.05)
    np.testing.assert_allclose(found[:, :, 1], 0.0, atol=0.1)
    assert want[0] > want[1] + 0.3 > want[2] + 0.6


def test_every_step_of_the_adversarys_rollouts_is_one_of_its_gradient_steps() -> None:
    """Each step moves the first coordinate by 1. Actions show the states that were visited: a
    rollout of three steps begins in the data, whose states are at 0, and the next one there again.
    """
    seen: list[np.ndarray] = []

    def ahead(world: Any, key: Any, s: jax.Array, a: jax.Array, member: Any) -> tuple:
        jax.debug.callback(lambda x: seen.append(np.unique(x)), s[:, 0], ordered=True)
        over = step_result(len(s), terminated=jnp.ones(len(s), bool))
        return s + jnp.array([1.0, 0.0]), over

    agent, begun = SAC.make(S, A), WorldModelParams(ELITES)
    data = rows()._replace(observations=jnp.zeros((B, S)), next_observations=jnp.zeros((B, S)))
    method = Rambo(**CADENCE, adversary_steps=7)
    extra = method.begin(agent, jax.random.key(0), Imagination(data, begun, {}, jnp.ones(())))
    state = Learning(agent.init(jax.random.key(1)), extra)
    world = Rolled(LINEAR._replace(model=Model(ahead)), begun, jnp.ones(()))
    jax.block_until_ready(method.before(agent, state, jax.random.key(2), data, world))
    jax.effects_barrier()
    np.testing.assert_array_equal(np.concatenate(seen), [0, 1, 2, 0, 1, 2, 0])


def test_equal_values_leave_the_likelihood_alone() -> None:
    """Advantages that are all equal are zero once standardised."""
    agent = SAC.make(S, A)
    flat = agent._replace(q=lambda critic, s, a: jnp.zeros((2, len(s))))
    taken = imagined()._replace(rewards=jnp.ones(B))
    state = agent.init(jax.random.key(1))
    gain = Rambo(**CADENCE).advantage(flat, state, jax.random.key(3), taken)
    np.testing.assert_allclose(gain, 0.0, atol=1e-5)


def test_the_models_loss_is_its_formula() -> None:
    """With the density of the mixture summed over elites in double precision."""
    method, taken, real = Rambo(adversary=0.7, **CADENCE), imagined(), rows()
    gain = np.random.default_rng(2).normal(size=B).astype(np.float32)
    normal = scipy.stats.norm

    def densities(of: Any) -> np.ndarray:
        change = np.asarray(of.next_observations, np.float64) - of.observations
        x = np.concatenate([change, np.asarray(of.rewards)[:, None]], -1)
        return normal.pdf(x, np.asarray(ELITES)[:, None], 0.5).prod(-1)

    want = 0.7 * (gain * np.log(densities(taken).mean(0))).mean()
    want -= np.log(densities(real)).mean()
    # What the library leaves out of a density is the same everywhere.
    want -= (0.7 * gain.mean() - 1) * -1.5 * np.log(2 * np.pi)
    # The library's sum over elites is no mean.
    want += 0.7 * gain.mean() * np.log(E)
    world = Rolled(LINEAR, WorldModelParams(ELITES), jnp.ones(()))
    found, _ = method.model_loss(ELITES, real, taken, jnp.asarray(gain), world)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_the_gradient_of_the_models_loss_is_a_finite_difference() -> None:
    method, small = Rambo(adversary=0.7, **CADENCE), 1e-2
    gain = jnp.asarray(np.random.default_rng(2).normal(size=B), jnp.float32)
    world = Rolled(LINEAR, WorldModelParams(ELITES), jnp.ones(()))

    def loss(elites: jax.Array) -> jax.Array:
        return method.model_loss(elites, rows(), imagined(), gain, world)[0]

    slope = np.asarray(jax.jit(jax.grad(loss))(ELITES))
    both = jax.jit(jax.vmap(lambda shift: loss(ELITES + shift) - loss(ELITES - shift)))
    every = small * jnp.eye(ELITES.size).reshape(-1, *ELITES.shape)
    want = np.asarray(both(every)).reshape(ELITES.shape) / (2 * small)
    np.testing.assert_allclose(slope, want, rtol=2e-2, atol=2e-3)
    assert (np.abs(want) > 0.01).any()


def test_the_density_is_the_normals() -> None:
    x, mean, std = (np.random.default_rng(i).uniform(0.2, 1, (3, 4, 2)) for i in range(3))
    want = jax.scipy.stats.norm.logpdf(x, mean, std).sum(-1) + np.log(2 * np.pi)
    found = log_prob(Gaussian(jnp.asarray(mean), jnp.asarray(std)), jnp.asarray(x))
    np.testing.assert_allclose(found, want, rtol=1e-4)
