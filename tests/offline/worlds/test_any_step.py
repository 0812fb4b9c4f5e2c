"""Any-step models: their windows, what a prediction reads, their uncertainty, and ADMPO's rows."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_learners import A, S, any_step, rows

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.data import Transitions, to_device
from jaxrl_rollouts.offline.environments.terminations import never
from jaxrl_rollouts.offline.method import Job
from jaxrl_rollouts.offline.methods.admpo import Admpo
from jaxrl_rollouts.offline.methods.model_based import Rollouts, bind
from jaxrl_rollouts.offline.worlds.any_step import (
    AnyStepConfig,
    Recent,
    any_step_dynamics,
    expanded,
    make_any_step,
    predict,
)
from jaxrl_rollouts.offline.worlds.fit import fit_model
from jaxrl_rollouts.rollouts import Model

KEY = jax.random.key(3)
M = 3


def test_every_length_of_a_row_stays_in_its_episode() -> None:
    """Four episodes of ten rows: of each 10 windows of one step, 9 of two and 8 of three."""
    t = rows()
    x, y = expanded(t, M, np.arange(40))
    assert len(x) == 4 * (10 + 9 + 8) and x.shape[1] == S + M * A + 1
    want = set()
    for i in range(40):
        for k in range(1, M + 1):
            first = i - k + 1
            if first < i // 10 * 10:
                continue
            taken = [np.zeros(A)] * (M - k) + [t.actions[j] for j in range(first, i + 1)]
            change = t.next_observations[i] - t.observations[first]
            parts = (t.observations[first], *taken, [k], change, [t.rewards[i]])
            want.add(tuple(np.concatenate(parts).astype(np.float32).round(4).tolist()))
    assert {tuple(row.round(4).tolist()) for row in np.concatenate([x, y], 1)} == want


@functools.cache
def made(backtrack: int, version: Any = "adm") -> tuple[Any, Any]:
    config = AnyStepConfig(version, backtrack, width=8, layers=2, blocks=1)
    model = make_any_step(config, rows())
    return model.fitter, model.world(model.fitter.init(KEY))


def drawn(count: int = 5, backtrack: int = M) -> tuple[Recent, jax.Array]:
    rng = np.random.default_rng(1)
    shapes = (count, backtrack, S), (count, backtrack - 1, A), (count, A)
    seen, taken, action = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)
    return Recent(seen, taken), action


versions = pytest.mark.parametrize("version", ["adm", "adm2"])


@versions
def test_initial_weights_are_made_without_lapack(version: Any) -> None:
    """Its kernels may wait for each other for ever on one or two cores."""
    config = AnyStepConfig(version=version, width=4, layers=2, blocks=1)
    init = jax.jit(make_any_step(config, rows()).fitter.ensemble.init)
    assert "lapack" not in init.lower(jax.random.key(0)).as_text()


@versions
def test_a_prediction_reads_the_last_actions_only(version: str) -> None:
    """Of the network that is fitted, with all lengths in one batch; a prediction runs the cells of
    its own length alone and is the same."""
    fitter, world = made(M, version)
    state, action = drawn()
    taken = jnp.concatenate([state.actions, action[:, None]], 1)
    other = taken.at[:, 0].add(5.0)
    for k, alike in ((1, True), (2, True), (3, False)):
        first, length = state.observations[:, -k], jnp.full((len(action), 1), float(k))
        rows = [jnp.concatenate([first, x.reshape(len(x), -1), length], 1) for x in (taken, other)]
        fitted = [
            fitter.ensemble.apply_all(world.elites, world.inputs.normalise(x))[0][0] for x in rows
        ]
        assert np.array_equal(*fitted) == alike
        found = predict(fitter, world, first, taken, k).mean
        np.testing.assert_allclose(found[:, :-1] - first, fitted[0][:, :-1], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[:, -1], fitted[0][:, -1], rtol=1e-5)


@versions
def test_a_shorter_window_is_the_same_network(version: str) -> None:
    """Weights do not depend on m, so one step by a model of three is one of a model of one."""
    long, world = made(M, version)
    short, one = made(1, version)
    state, action = drawn()
    taken = jnp.concatenate([state.actions, action[:, None]], 1)
    one = one._replace(elites=world.elites)
    want = predict(short, one, state.observations[:, -1], action[:, None], 1)
    found = predict(long, world, state.observations[:, -1], taken, 1)
    np.testing.assert_allclose(found.mean, want.mean, rtol=1e-5)
    np.testing.assert_allclose(found.std, want.std, rtol=1e-5)


@versions
def test_a_step_is_one_of_the_predictions_and_moves_the_window(version: Any) -> None:
    fitter, world = made(M, version)
    still = world._replace(
        elites={**world.elites, "log_var_high": world.elites["log_var_high"] - 60.0}
        | {"log_var_low": world.elites["log_var_low"] - 60.0}
    )
    step = any_step_dynamics(fitter, M, never, version).model.step
    state, action = drawn()
    taken = jnp.concatenate([state.actions, action[:, None]], 1)
    latest = state.observations[:, -1] if version == "adm2" else None
    back = [state.observations[:, -k] for k in (1, 2, 3)]
    means = np.stack(
        [predict(fitter, still, s, taken, k, latest).mean for k, s in enumerate(back, 1)]
    )
    chosen = set()
    for seed in range(12):
        after, out = step(still, jax.random.key(seed), state, action, None)
        gaps = np.abs(means[..., :-1] - np.asarray(after.observations[:, -1])).max((1, 2))
        chosen.add(int(gaps.argmin()))
        assert gaps.min() < 1e-4
        np.testing.assert_allclose(out.reward, means[gaps.argmin(), :, -1], atol=1e-4)
    assert chosen == {0, 1, 2}
    np.testing.assert_array_equal(after.observations[:, :-1], state.observations[:, 1:])
    np.testing.assert_array_equal(after.actions, taken[:, 1:])
    want = np.sqrt(means[..., :-1].var(0, ddof=int(version == "adm2")).mean(-1))
    np.testing.assert_allclose(out.uncertainty, want, rtol=1e-4)


def test_timelines_that_are_carried_are_the_second_versions_predictions() -> None:
    """A memory per timeline, moved by one action a step, with the cells' own arithmetic."""
    fitter, world = made(M, "adm2")
    weights = jax.tree.map(lambda x: np.asarray(x[0], np.float64), world.elites)
    state, action = drawn()
    taken = np.asarray(jnp.concatenate([state.actions, action[:, None]], 1))

    def dense(name: str, x: np.ndarray) -> np.ndarray:
        own = weights[name]
        return x @ own["kernel"] + own.get("bias", 0.0)

    def block(number: int, x: np.ndarray) -> np.ndarray:
        y = dense(f"Dense_{number}", x)
        y = x + y / (1 + np.exp(-y))
        y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
        own = weights[f"LayerNorm_{0 if number == 2 else 1}"]
        return y * own["scale"] + own["bias"]

    def gru(layer: int, memory: np.ndarray, given: np.ndarray) -> np.ndarray:
        own = weights[f"GRUCell_{layer}"]

        def part(name: str, x: np.ndarray) -> np.ndarray:
            return x @ own[name]["kernel"] + own[name].get("bias", 0.0)

        reset, kept = (
            1 / (1 + np.exp(-(part(f"i{g}", given) + part(f"h{g}", memory)))) for g in "rz"
        )
        new = np.tanh(part("in", given) + reset * part("hn", memory))
        return (1 - kept) * new + kept * memory

    mean, std = (np.asarray(x) for x in world.inputs[:2])
    acts = (taken - mean[S : S + A]) / std[S : S + A]
    for k in (1, 2, 3):
        seen = (np.asarray(state.observations[:, -k]) - mean[:S]) / std[:S]
        memories = np.split(dense("Dense_0", block(2, dense("Dense_1", seen))), 2, -1)
        before = memories[-1]
        for j in range(M - k, M):
            given, before = acts[:, j], memories[-1]
            for layer in (0, 1):
                given = memories[layer] = gru(layer, memories[layer], given)
        out = block(4, dense("Dense_3", np.concatenate([before, memories[-1]], -1)))
        want = dense("Dense_5", out)
        latest = jnp.zeros((5, S))
        found = predict(fitter, world, state.observations[:, -k], jnp.asarray(taken), k, latest)
        np.testing.assert_allclose(found.mean, want, rtol=1e-3, atol=1e-4)


@versions
def test_with_one_step_back_there_is_no_uncertainty(version: Any) -> None:
    fitter, world = made(1, version)
    dynamics = any_step_dynamics(fitter, 1, never, version)
    state, action = drawn(backtrack=1)
    after, out = dynamics.model.step(world, KEY, state, action, None)
    assert (np.asarray(out.uncertainty) == 0).all() and after.actions.shape == (5, 0, A)
    own = dynamics.sample_elites(world, jax.random.split(KEY)[1], state.observations[:, -1], action)
    np.testing.assert_allclose(after.observations[:, -1], own.next_observations[0], rtol=1e-5)
    np.testing.assert_allclose(out.reward, own.rewards[0], rtol=1e-5)


def test_rollouts_begin_with_windows_of_the_dataset() -> None:
    method, dynamics, data = any_step()
    assert isinstance(dynamics.model, Model)
    start = method.starts(KEY, data.real, 500)
    t = rows()
    found = {
        tuple(np.concatenate([np.ravel(x), np.ravel(a)]).round(4).tolist())
        for x, a in zip(*start, strict=True)
    }
    windows = [slice(i - M + 1, i + 1) for i in range(40) if i % 10 >= M - 1]
    want = {
        tuple(
            np.concatenate([t.observations[w].ravel(), t.actions[w][:-1].ravel()]).round(4).tolist()
        )
        for w in windows
    }
    assert found == want


def test_the_penalty_arrives_in_the_buffer() -> None:
    method, dynamics, data = any_step()
    kept = {}
    for penalty in (0.0, 2.0):
        own = data._replace(coefficients={"penalty": jnp.float32(penalty)})
        learner = bind(method.program(), dynamics, S, A)
        state = learner.init(KEY, own)
        trajectory = learner.imagine(state, jax.random.split(state.key, 3)[0], own)
        after, _ = jax.jit(learner.update)(state, own)
        kept[penalty] = np.asarray(after.imagined.rows.rewards[: int(after.imagined.size)])
        u = np.asarray(trajectory.steps.uncertainties).ravel()
    assert len(u) == len(kept[2.0]) == 12 and (u > 1e-4).all()
    np.testing.assert_allclose(kept[0.0] - 2.0 * u, kept[2.0], rtol=1e-4, atol=1e-5)


@versions
def test_a_linear_system_is_learned_at_every_length(version: Any) -> None:
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (400, 1)).astype(np.float32)
    last = np.arange(400) % 20 == 19
    states = np.zeros((400, 1), np.float32)
    for i in range(1, 400):
        states[i] = 0 if last[i - 1] else states[i - 1] + 0.5 * actions[i - 1]
    following = states + 0.5 * actions
    t = Transitions(states, actions, actions[:, 0], following, np.zeros(400, bool), last)
    config = AnyStepConfig(
        version, 2, width=32, layers=1, blocks=1, lr=1e-2, batch_size=32, max_epochs=40
    )
    model = make_any_step(config, t)
    fitted: Any = config
    world = fit_model(model, fitted, KEY).world()
    chosen = np.flatnonzero(np.arange(400) % 20 > 0)
    taken = jnp.asarray(np.stack([actions[chosen - 1], actions[chosen]], 1))
    latest = jnp.asarray(states[chosen]) if version == "adm2" else None
    back = [jnp.asarray(states[chosen - k + 1]) for k in (1, 2)]
    found = [
        np.asarray(predict(model.fitter, world, s, taken, k, latest).mean)
        for k, s in enumerate(back, 1)
    ]
    for one in found:
        error = one - np.concatenate([following[chosen], actions[chosen]], 1)
        assert np.sqrt(np.square(error).mean(0)).max() < 0.1
    still = np.sqrt(np.square(following - states).mean())  # of a model without change
    assert np.abs(found[0] - found[1])[:, 0].mean() < 0.3 * still


def test_refused_settings() -> None:
    with pytest.raises(ConfigError, match="rollouts.adaptive: found True"):
        check(Admpo(rollouts=replace(Rollouts(), adaptive=True)))
    with pytest.raises(ConfigError, match="world.backtrack: found 11, expected at most .* 10"):
        make_any_step(AnyStepConfig(backtrack=11), rows())
    method, dynamics, _ = any_step()
    none: Any = None
    with pytest.raises(ConfigError, match="dynamics: found 'given', expected none"):
        method.rolled_models(none, Job(dynamics=dynamics))
    assert to_device(method.real_rows(rows())).starts.dtype == jnp.int32
