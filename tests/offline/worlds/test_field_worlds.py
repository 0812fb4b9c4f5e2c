"""Networks on fields as members of world models: by hand, on the heat equation, under methods."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fixtures import stirred, tiny

from jaxrl_rollouts.cli.options import parse_run
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import CheckpointError, ConfigError, Interrupted
from jaxrl_rollouts.field_networks import FIRST_INDEX, FieldShape
from jaxrl_rollouts.networks import parameter_count
from jaxrl_rollouts.offline import recipe, train
from jaxrl_rollouts.offline.behaviours.ks_control import ks_mixed
from jaxrl_rollouts.offline.collect import collect, random_policy
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments import make
from jaxrl_rollouts.offline.environments.base import Environment, begin, observe, proceed
from jaxrl_rollouts.offline.environments.ks_control import FOUR, advance, jets
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.worlds.dynamics import learned_dynamics, predict
from jaxrl_rollouts.offline.worlds.fields import FieldEnsemble, on_fields, pooled
from jaxrl_rollouts.offline.worlds.fit import fit_world_models, make_world_model
from jaxrl_rollouts.offline.worlds.open_loop import open_loop, windows
from jaxrl_rollouts.offline.worlds.saved import load_worlds
from jaxrl_rollouts.pde.operators import Fno
from jaxrl_rollouts.plugins import load_experiment
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.scaler import Scaler, fit_scaler, identity_scaler

N, A = 16, 2
# Two heaters, of other strength and width, on a ring.
AT = np.arange(N)
HEATERS = np.stack([np.exp(-((AT - 4) ** 2) / 4.0), 0.5 * np.exp(-((AT - 11) ** 2) / 8.0)])
DIFFUSION = 0.2


def heated(u: Any, a: Any) -> Any:
    """A step of the heat equation, explicit Euler: `u + d (u_+ - 2 u + u_-) + a g / 2`."""
    return u + DIFFUSION * (jnp.roll(u, 1, -1) - 2 * u + jnp.roll(u, -1, -1)) + 0.5 * forced(a)


def forced(a: Any) -> Any:
    return a @ jnp.asarray(HEATERS, jnp.float32)


def _reset(key: Any, batch: int) -> Any:
    phase, size = jax.random.uniform(key, (2, batch, 2, 1))
    waves = size * jnp.cos(2 * jnp.pi * (jnp.arange(1, 3)[:, None] * jnp.arange(N) / N + phase))
    return begin(waves.sum(1), waves.sum(1))


def _step(key: Any, state: Any, action: Any) -> Any:
    field = heated(state.inner, jnp.clip(action, -1, 1))
    over = jnp.zeros(len(field), bool)
    return proceed(state, field, field, -jnp.square(field).mean(-1), over, 20)


HEAT = Environment(
    "heat", N, A, 20, _reset, _step, observe, termination=never, forcing=forced,
    set_observation=lambda u: begin(u, u),
)  # fmt: skip
SMALL: dict[str, Any] = {"members": 3, "elites": 3, "batch_size": 32, "bootstrap": False}


@functools.cache
def heat() -> Dataset:
    rows = collect(HEAT, random_policy(A), None, jax.random.key(0), steps=800)
    return Dataset("heat", rows, "heat", Path("(made)"), "")


def ensemble(**changes: Any) -> FieldEnsemble:
    return FieldEnsemble(**{"network": tiny(), "max_epochs": 2, **SMALL, **changes})


def test_a_member_is_its_network_with_the_force_as_a_channel() -> None:
    """Two channels on 8 points: six channels in; the reward is the mean of the last but one."""
    config = ensemble(grid=(8,), learned_bounds=False, log_var_low=-90.0, log_var_high=90.0)
    maps = np.random.default_rng(0).normal(size=(A, 8)).astype(np.float32)
    *_, member = on_fields(
        config, identity_scaler(N + A), identity_scaler(N + 1), lambda a: a @ maps
    )
    params = stirred(member)
    x = np.random.default_rng(1).normal(size=(3, N + A)).astype(np.float32)
    mean, log_var = member.apply({**params, "forces": maps}, x)
    net = tiny().make(FieldShape(6, (8,)))
    for row, own, spread in zip(x, mean, log_var, strict=True):
        seen = np.zeros((6, 8), np.float32)
        seen[:2], seen[2] = row[:N].reshape(2, 8), row[N:] @ maps
        out = net.apply(params["net"], seen, np.zeros((6, 8)), FIRST_INDEX, np.zeros(0))
        np.testing.assert_allclose(own[:N], np.ravel(out[:2]), rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(own[N], out[4].mean(), rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(spread[:N], np.ravel(out[2:4]), rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(spread[N], out[5].mean(), rtol=2e-4, atol=2e-4)


def test_a_channel_has_one_scale_and_actions_none() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=(400, 2, 8)) * np.array([[3.0], [0.1]]) + np.arange(8)
    x = np.concatenate([u.reshape(400, N), rng.uniform(0, 1, (400, A))], 1).astype(np.float32)
    given = fit_scaler(jnp.asarray(x))
    found, units, _ = on_fields(ensemble(grid=(8,)), given, identity_scaler(N + 1), None)
    for channel in (0, 1):
        at = slice(8 * channel, 8 * channel + 8)
        np.testing.assert_allclose(found.mean[at], u[:, channel].mean(), rtol=1e-4)
        np.testing.assert_allclose(found.std[at], u[:, channel].std(), rtol=1e-4)
    np.testing.assert_array_equal(found.mean[N:], 0)
    np.testing.assert_array_equal(found.std[N:], 1)
    np.testing.assert_array_equal(units.std, 1)
    reward = pooled(Scaler(jnp.arange(5.0), jnp.arange(1.0, 6.0)), 4, 1)
    assert reward.mean[4] == 4 and reward.std[4] == 5


@functools.cache
def fitted(known: bool) -> Any:
    config = ensemble(network=Fno(width=8, layers=1, modes=6, embedding=4), max_epochs=60, lr=5e-3)
    return fit_world_models(config, heat(), 0, forcing=forced if known else None)


@pytest.mark.parametrize("known", [True, False])
def test_the_heat_equation_is_reproduced(known: bool) -> None:
    """Steps never seen are predicted to a small share of how far the field moves."""
    found = fitted(known)
    rng = np.random.default_rng(5)
    u: Any = np.asarray(_reset(jax.random.key(7), 64).observation)
    a: Any = rng.uniform(-1, 1, (64, A)).astype(np.float32)
    mean = predict(found.model.fitter, found.world(), u, a).mean
    true = np.asarray(heated(u, a)) - u
    off = np.sqrt(np.square(np.asarray(mean[..., :N]) - true).mean((1, 2)))
    assert (off < 0.1 * true.std()).all(), off / true.std()
    forces = np.asarray(found.world().elites["forces"])
    if known:
        np.testing.assert_allclose(forces, np.broadcast_to(HEATERS, forces.shape), rtol=1e-6)
    else:  # up to a factor, which the network has
        for member in forces:
            found_at, true_at = np.abs(member).argmax(1), HEATERS.argmax(1)
            assert np.abs(found_at - true_at).max() <= 1


def test_an_actuated_field_that_is_moved_is_predicted_moved() -> None:
    """Field and heaters three points on: nothing but the place changes."""
    found, world = fitted(True), fitted(True).world()
    moved = world._replace(
        elites={**world.elites, "forces": jnp.roll(world.elites["forces"], 3, -1)}
    )
    u: Any = np.asarray(_reset(jax.random.key(3), 4).observation)
    a: Any = np.full((4, A), 0.7, np.float32)
    here = predict(found.model.fitter, world, u, a).mean[..., :N]
    ahead: Any = np.roll(u, 3, -1)
    there = predict(found.model.fitter, moved, ahead, a).mean[..., :N]
    np.testing.assert_allclose(there, np.roll(here, 3, -1), atol=1e-5)


NETWORK = {"resnet": {"width": 4, "blocks": 1, "dilations": [1, 2], "embedding": 4}}
WORLD: dict[str, Any] = {"network": NETWORK, "members": 3, "elites": 2, "max_epochs": 2}
LOOKS: dict[str, Any] = {"seeds": 2, "evaluations": 1, "episodes": 2, "environment": HEAT}


def method(name: Any, **changes: Any) -> Any:
    return recipe(name, "smoke", world=WORLD, **changes)


@pytest.mark.parametrize(
    "name", ["mopo", *(pytest.param(n, marks=pytest.mark.slow) for n in ("base", "ravl"))]
)
def test_methods_train_in_fields_and_the_models_are_saved(name: str, tmp_path: Path) -> None:
    """Rollouts stop at the largest disagreement on the data; what is loaded predicts the same."""
    result: Any = train(heat(), method(name, rollouts={"adaptive": True, "length": 10}), **LOOKS)
    assert np.isfinite(result.returns).all() and result.returns.shape == (2,)
    own = result.source.fitted
    assert (np.asarray(result.history.last("imagined_uncertainty")) > 0).all()
    length = result.history.last("imagined_length")
    assert ((length >= 1) & (length <= 10)).all()
    result.save(tmp_path)
    found: Any = load_worlds(tmp_path, heat())
    assert found.config == result.method.world.ensemble
    assert found.config.network == result.method.world.network
    u: Any = np.asarray(_reset(jax.random.key(3), 4).observation)
    a: Any = np.full((4, A), 0.7, np.float32)
    for seed in (0, 1):
        both = (
            predict(fitter, jax.tree.map(lambda x, k=seed: x[k], worlds), u, a).mean
            for fitter, worlds in (
                (own.model.fitter, own.worlds),
                (found.model.fitter, found.worlds),
            )
        )
        one, other = both
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_posterior_of_fields_serves_neubay() -> None:
    result: Any = train(heat(), method("neubay", per_iteration=5), **LOOKS)
    assert np.isfinite(result.returns).all()


def test_a_fit_that_was_cut_goes_on_to_the_bit(tmp_path: Path) -> None:
    config = ensemble(max_epochs=4)
    whole = fit_world_models(config, heat(), 0, forcing=forced)

    def context(looks: int) -> RunContext:
        left = iter(range(looks))
        stop: Any = type("Stop", (), {"requested": property(lambda _: next(left, None) is None)})()
        return RunContext(folder, False, stop=stop)

    folder = RunFolder.create(tmp_path, "toy", "test", config, "nothing")
    for looks in (1, 2):
        with pytest.raises(Interrupted):
            fit_world_models(config, heat(), 0, forcing=forced, context=context(looks))
    again = fit_world_models(config, heat(), 0, forcing=forced, context=context(99))
    jax.tree.map(np.testing.assert_array_equal, again.worlds, whole.worlds)
    with pytest.raises(CheckpointError, match="does not fit this configuration"):
        other = ensemble(max_epochs=4, network=Fno(width=4, layers=1, modes=2, embedding=4))
        fit_world_models(other, heat(), 0, forcing=forced, context=context(99))


def test_an_environment_says_how_its_actions_force_a_field() -> None:
    """A step of the equation moves a field at rest by the force of its actions, times the hold."""
    env = make("ks_control")
    assert env.forcing is not None
    a = jnp.asarray([[0.02, -0.01, 0.0, 0.015]])
    np.testing.assert_allclose(env.forcing(a), a @ jets(FOUR), rtol=1e-5)
    moved = advance(FOUR._replace(dt=1e-4), jnp.zeros((1, 64)), a) / (5 * 1e-4)
    # Long waves, which neither the cut at two thirds nor viscosity changes meanwhile.
    found, true = (np.fft.rfft(x)[:, :6] for x in (moved, env.forcing(a)))
    np.testing.assert_allclose(found, true, atol=2e-3 * np.abs(true).max())


def test_a_grid_has_to_fit() -> None:
    rows = heat().with_successors
    for grid in ((5,), (32,), (4, 3)):
        with pytest.raises(ConfigError, match="product divides the 16 observations") as caught:
            make_world_model(ensemble(grid=grid), rows)
        assert caught.value.setting == "world.grid"
    plane = make_world_model(ensemble(grid=(4, 2)), rows)  # two channels on 4 x 2 points
    assert plane.fitter.ensemble.size == 3


def test_the_network_of_a_world_is_chosen_on_the_command_line() -> None:
    line = "--method ravl --world.network fno --world.network.width 8 --world.grid 32"
    config = parse_run(load_experiment("offline"), line.split())[1]
    assert config.method.world.network == Fno(width=8) and config.method.world.grid == (32,)
    plain = parse_run(load_experiment("offline"), ["--method", "neubay"])[1]
    assert type(plain.method.world.ensemble).__name__ == "EnsembleConfig"


@pytest.mark.slow
def test_a_field_world_follows_an_actuated_field_longer_than_perceptrons() -> None:
    """`ks_control` along logged actions, 20 steps of episodes not seen, fewer weights: half the
    error at most."""
    env = make("ks_control")
    rows, unseen = (ks_mixed(jax.random.key(seed), 4000) for seed in (0, 1))
    shared: dict[str, Any] = {**SMALL, "members": 2, "elites": 2, "variance": "output"}
    shared |= {"max_epochs": 12, "weight_decay": (0.0,)}
    arms = {
        "fields": FieldEnsemble(network=Fno(width=12, modes=12, layers=2, embedding=8), **shared),
        "perceptrons": EnsembleConfig(hidden_dims=(64, 64), **shared),
    }
    logged, error, size = windows(unseen, 20, 32), {}, {}
    for name, config in arms.items():
        found = fit_world_models(config, rows, 0, forcing=env.forcing)
        dynamics = learned_dynamics(found.model.fitter, 2, termination=never, noise="none")
        rolled = open_loop(dynamics, found.world(), logged, jax.random.key(0))
        error[name] = float(np.median(rolled.error[-1]))
        size[name] = parameter_count(found.world().elites)
    assert size["fields"] < size["perceptrons"] and error["fields"] < 0.5 * error["perceptrons"]
