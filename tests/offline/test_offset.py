"""Columns of a large offset, from the file to the exported policy: no change is lost."""

import warnings
from dataclasses import replace

import gymnasium
import h5py
import numpy as np
import pytest

from jaxrl_rollouts import fit_ensemble
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.exported import load_exported
from jaxrl_rollouts.offline import from_arrays, from_gymnasium, load, recipe, train
from jaxrl_rollouts.offline.data.inspection import inspect
from jaxrl_rollouts.offline.data.offsets import in_order, with_offset
from jaxrl_rollouts.offline.environments.base import with_columns
from jaxrl_rollouts.offline.environments.offset import shifted
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.matching import environment_of
from jaxrl_rollouts.offline.policy import load_policy
from jaxrl_rollouts.offline.task import warnings_of
from jaxrl_rollouts.offline.worlds.exact import true_dynamics

PLACE = 1.0e6  # m
LENGTH = 20


class Track(gymnasium.Env):
    """A cart at `PLACE` + x, x within 0.1 m: the reward is -|x|, so that the best action is
    towards `PLACE`."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-0.1, 0.1)
        return self.seen(), {}

    def seen(self):
        return np.array([PLACE + self.x, 10.0 * self.x])

    def step(self, action):
        self.x = np.clip(self.x + 0.02 * float(action[0]), -0.1, 0.1)
        return self.seen(), -abs(self.x), False, False, {}


def best(x):
    return np.clip(-50.0 * x, -1.0, 1.0)


def rows(episodes=60, columns=(0,)):
    """Arrays of a noisy expert, float64."""
    env, rng, out = Track(), np.random.default_rng(0), []
    for seed in range(episodes):
        now, _ = env.reset(seed=seed)
        for step in range(LENGTH):
            action = np.clip(best(env.x) + rng.normal(0, 0.05), -1, 1)
            after, reward, *_ = env.step([action])
            out.append(
                (now[list(columns)], [action], reward, step == LENGTH - 1, after[list(columns)])
            )
            now = after
    seen, actions, rewards, cut, after = (np.array(x) for x in zip(*out, strict=True))
    return {
        "observations": seen,
        "actions": actions,
        "rewards": rewards,
        "terminals": np.zeros(len(cut), bool),
        "timeouts": cut,
        "next_observations": after,
    }


class OneColumn(Track):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)

    def seen(self):
        return np.array([PLACE + self.x])


def neorl(arrays):
    return {
        "obs": arrays["observations"],
        "next_obs": arrays["next_observations"],
        "action": arrays["actions"],
        "reward": arrays["rewards"],
        "done": arrays["timeouts"],
        "index": np.arange(0, len(arrays["rewards"]), LENGTH),
    }


@pytest.fixture
def stored(tmp_path):
    """The same rows in memory and in files of several layouts."""
    arrays = rows(columns=(0, 1))
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for key, values in arrays.items():
            file[key] = values
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez(tmp_path / "n.npz", **neorl(arrays))
    kept = [key for key in arrays if key != "next_observations"]
    np.savez(tmp_path / "s.npz", **{key: arrays[key] for key in kept})
    return arrays, {
        "memory": lambda: from_arrays(**arrays),
        "hdf5": lambda: load(tmp_path / "a.hdf5"),
        "streamed": lambda: load(tmp_path / "a.hdf5", stream="always"),
        "npz": lambda: load(tmp_path / "a.npz"),
        "neorl": lambda: load(tmp_path / "n.npz", max_episode_steps=LENGTH),
        "shifted": lambda: load(tmp_path / "s.npz"),
    }


@pytest.mark.parametrize("kind", ["memory", "hdf5", "streamed", "npz", "neorl", "shifted"])
def test_no_layout_loses_the_changes_of_a_column_far_from_zero(stored, kind, monkeypatch, tmp_path):
    monkeypatch.setenv("JAXRL_ROLLOUTS_CACHE", str(tmp_path))
    arrays, reads = stored
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = reads[kind]()
    found = dataset.transitions
    kept = np.flatnonzero(~arrays["timeouts"]) if kind == "shifted" else slice(None)
    true = (arrays["next_observations"] - arrays["observations"])[kept]
    np.testing.assert_allclose(
        np.asarray(found.next_observations) - found.observations, true, atol=2e-7
    )
    assert found.observations.dtype == np.float32
    assert dataset.offset is not None and abs(dataset.offset[0] - PLACE) <= 0.1
    assert dataset.offset[1] == 0, "what float32 holds stays as it is, to the bit"
    np.testing.assert_array_equal(
        found.observations[:, 1], arrays["observations"][kept, 1].astype(np.float32)
    )
    place = inspect(dataset).ranges[0]
    assert abs(place.low - arrays["observations"][kept, 0].min()) < 1e-6
    assert abs(place.mean - arrays["observations"][kept, 0].mean()) < 1e-6


def test_a_policy_is_learned_played_saved_and_exported_without_loss(tmp_path):
    """Behaviour cloning of a deviation of 0.06 m at 1,000,000 m, a rounding of float32."""
    dataset = from_arrays(**rows(), max_episode_steps=LENGTH)
    env = from_gymnasium(OneColumn, max_episode_steps=LENGTH)
    settings = recipe(
        "bc", "smoke", steps=1000, hidden_dims=(64, 64), batch_size=256, normalize_obs=True
    )
    result = train(dataset, settings, environment=env, seeds=1, episodes=20)
    x = np.linspace(-0.08, 0.08, 9)
    policy = result.policy(0)
    actions = policy(PLACE + x[:, None])[:, 0]
    np.testing.assert_allclose(actions, best(x), atol=0.3)
    assert np.corrcoef(actions, best(x))[0, 1] > 0.98
    behaviour = -dataset.transitions.rewards.reshape(-1, LENGTH).sum(1).mean()
    assert result.returns is not None and -result.returns[0] < 1.3 * behaviour
    folder = result.save(tmp_path / "run")
    saved = load_policy(folder)
    np.testing.assert_array_equal(saved(PLACE + x[:, None])[:, 0], actions)
    taken = load_exported(policy.export(tmp_path / "p.stablehlo"))
    np.testing.assert_allclose(taken(PLACE + x[:, None])[:, 0], actions, atol=1e-5)


def test_environments_on_the_host_subtract_before_they_cast():
    dataset = from_arrays(**rows(columns=(0, 1)))
    assert dataset.offset is not None
    env = environment_of(dataset, from_gymnasium(Track, max_episode_steps=LENGTH))
    assert env.starts is not None
    first, second = env.starts(4)
    np.testing.assert_allclose(
        10 * (first[:, 0] + dataset.offset[0] - PLACE), first[:, 1], atol=1e-6
    )
    assert (np.abs(first - second)[:, 0] > 1e-4).all()
    plain = from_gymnasium(Track, max_episode_steps=LENGTH)._replace(columns=("a", "b"))
    turned = shifted(with_columns(plain, ("b", "a")), dataset.offset[::-1])
    assert turned.starts is not None and turned.offset == tuple(dataset.offset[::-1])
    np.testing.assert_array_equal(turned.starts(4)[0], first[:, ::-1])


def test_a_compiled_environment_shows_its_observations_less_the_offset():
    import jax

    offset = np.array([0.0, 2.0, -1.5])
    env, key = shifted(PENDULUM, offset), jax.random.key(0)
    state = env.reset(key, 3)
    plain = PENDULUM.observe(PENDULUM.reset(key, 3))
    np.testing.assert_allclose(env.observe(state) + offset, plain, atol=1e-6)
    action = jax.numpy.full((3, 1), 0.3)
    after, _ = env.step(key, state, action)
    true, _ = PENDULUM.step(key, PENDULUM.reset(key, 3), action)
    np.testing.assert_allclose(env.observe(after) + offset, PENDULUM.observe(true), atol=1e-6)
    assert env.set_observation is not None and env.reward is not None
    again = env.set_observation(env.observe(state))
    np.testing.assert_allclose(env.observe(again), env.observe(state), atol=1e-5)
    found = env.reward(env.observe(state), action, env.observe(after))
    assert PENDULUM.reward is not None
    np.testing.assert_allclose(
        found, PENDULUM.reward(plain, action, PENDULUM.observe(true)), atol=1e-4
    )


def test_other_rows_are_moved_to_the_units_of_a_policy():
    dataset = from_arrays(**rows())
    moved = with_offset(dataset, [PLACE - 0.25])
    assert dataset.offset is not None
    gained = dataset.offset - (PLACE - 0.25)
    np.testing.assert_allclose(
        moved.transitions.observations, dataset.transitions.observations + gained, atol=1e-7
    )
    assert with_offset(dataset, dataset.offset) is dataset


def test_an_ensemble_subtracts_before_it_casts():
    x = np.random.default_rng(0).uniform(-0.1, 0.1, (400, 1))
    config = EnsembleConfig(members=2, elites=2, hidden_dims=(32, 32), max_epochs=60)
    fitted = fit_ensemble(PLACE + x, 3 * PLACE + 20 * x, config)
    found = fitted.predict(PLACE + x).mean.mean(0)
    assert found.dtype == np.float64
    assert np.abs(found - (3 * PLACE + 20 * x)).mean() < 0.2, "a deviation is 1.2"


def test_collected_rows_are_written_without_loss(tmp_path, monkeypatch):
    """`data collect` in an environment far from zero, by random actions and by a policy."""
    from jaxrl_rollouts.offline.commands import collect
    from jaxrl_rollouts.plugins import trust

    trust("track_env:make")

    (tmp_path / "track_env.py").write_text(
        "import gymnasium\nfrom " + __name__ + " import Track\n"
        "make = lambda: gymnasium.wrappers.TimeLimit(Track(), 20)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    arrays = rows(columns=(0, 1))
    result = train(from_arrays(**arrays), recipe("bc", "smoke"), environment="none", seeds=1)
    result.save(tmp_path / "run")
    for policy in ("random", str(tmp_path / "run")):
        out = tmp_path / "rows.hdf5"
        collect(out, "track_env:make", policy, steps=100)
        with h5py.File(out) as file:
            seen = np.asarray(file["observations"])
        np.testing.assert_allclose(10 * (seen[:, 0] - PLACE), seen[:, 1], atol=1e-6)
        assert load(out).offset is not None


def test_what_was_subtracted_is_reported_before_a_training():
    dataset = from_arrays(**rows(columns=(1, 0)))
    env = environment_of(dataset, "none")
    (fact,) = (x for x in warnings_of(dataset, env, None, imagines=False) if "float64" in x)
    assert "observations are less 1e+06 of entry 1, subtracted in float64" in fact


def test_rows_are_put_in_the_order_of_a_policys_columns():
    dataset = replace(from_arrays(**rows(columns=(0, 1))), columns=("place", "ten"))
    turned = in_order(dataset, ("ten", "place"))
    assert turned.offset is not None and turned.offset.tolist() == [0.0, dataset.offset[0]]
    np.testing.assert_array_equal(
        turned.transitions.observations, dataset.transitions.observations[:, ::-1]
    )
    assert in_order(dataset, ()) is dataset is in_order(dataset, ("place", "ten"))
    with pytest.raises(DataError, match="found .'place', 'ten'., expected .'place', 'speed'."):
        in_order(dataset, ("place", "speed"))


def test_dynamics_from_elsewhere_are_refused():
    """Whether they are of observations less the offset does not show."""
    settings = recipe("mopo", "smoke")
    dynamics = true_dynamics(PENDULUM)
    with pytest.raises(ConfigError, match="dynamics: found .given.*none for data less an offset"):
        train(from_arrays(**rows()), settings, environment="none", dynamics=dynamics)
