"""Gymnasium's vector environments in their three autoreset modes: whole episodes, known returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv  # noqa: E402

from jaxrl_rollouts import offline  # noqa: E402
from jaxrl_rollouts.errors import ConfigError, SimulatorError  # noqa: E402
from jaxrl_rollouts.offline.collect import collect  # noqa: E402
from jaxrl_rollouts.offline.environments import from_gymnasium, make  # noqa: E402
from jaxrl_rollouts.offline.environments.replayed import keeping  # noqa: E402
from jaxrl_rollouts.offline.evaluation import evaluate  # noqa: E402

SEES = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
ACTS = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)
LIMIT = 7
MODES = list(AutoresetMode)


class Count(gymnasium.Env):
    """Step t of an episode pays t + action and the last, of a random number, ends it; both are
    observed. So an episode of L steps and actions of `a` returns L (L + 1) / 2 + L a."""

    observation_space, action_space = SEES, ACTS

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.state = np.array([0.0, self.np_random.integers(2, LIMIT)])
        return self.state.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.state[0] < self.state[1], "stepped beyond its end"
        self.state[0] += 1.0
        ended = bool(self.state[0] >= self.state[1])
        return self.state.copy(), self.state[0] + float(action[0]), ended, False, {}


class Counts(VectorEnv):
    """Four of them in numpy, of a user's own; a reset takes one integer."""

    single_observation_space, single_action_space, num_envs = SEES, ACTS, 4
    spec = None

    def __init__(self, mode: Any) -> None:
        self.metadata = {"autoreset_mode": mode}
        self.mode = mode

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if seed is not None:
            self.state = np.zeros((self.num_envs, 2))
        self.ended = np.zeros(self.num_envs, bool)
        return self.begin(mask), {}

    def begin(self, mask: np.ndarray) -> np.ndarray:
        self.state[mask, 0] = 0.0
        self.state[mask, 1] = self.np_random.integers(2, LIMIT, mask.sum())
        return self.state.copy()

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        fresh = self.ended & (self.mode == AutoresetMode.NEXT_STEP)
        assert not (self.ended & ~fresh).any(), "stepped beyond its end"
        self.state[:, 0] += 1.0
        rewards = np.where(fresh, 0.0, self.state[:, 0] + actions[:, 0])
        self.begin(fresh)
        self.ended = (self.state[:, 0] >= self.state[:, 1]) & ~fresh
        ended, info = self.ended.copy(), {}
        if self.mode == AutoresetMode.SAME_STEP and ended.any():
            info = {"final_obs": self.state.copy()}
            self.begin(ended)
            self.ended[:] = False
        return self.state.copy(), rewards, ended, np.zeros(4, bool), info


def sync(mode: Any, rows: int = 2) -> Callable[[], Any]:
    return lambda: SyncVectorEnv([Count] * rows, autoreset_mode=mode)


def half(params: Any, key: Any, observation: Any, memory: Any) -> tuple[Any, Any]:
    """Half of the upper bound, which is 2: an action of 1."""
    return 0 * observation[:, :1] + 0.5, memory


@pytest.mark.parametrize("mode", MODES)
def test_five_episodes_of_two_rows_are_those_of_single_environments(mode: Any) -> None:
    key = jax.random.key(4)
    one, many = (from_gymnasium(env, max_episode_steps=LIMIT) for env in (Count, sync(mode)))
    alone, played = (evaluate(env, half, None, key, 5) for env in (one, many))
    steps = np.asarray(played.lengths)
    assert len(set(steps.tolist())) > 1 and played.terminated.all()
    np.testing.assert_array_equal(played.returns, steps * (steps + 1) / 2 + steps)
    for mine, theirs in zip(played, alone, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    rows, plain = (collect(env, half, None, key, episodes=5) for env in (many, one))
    np.testing.assert_array_equal(rows.next_observations, plain.next_observations)
    last = rows.next_observations[rows.terminations]
    np.testing.assert_array_equal(last[:, 0], last[:, 1])
    for mine, theirs in zip(many.starts(6), one.starts(6), strict=True):
        assert mine.shape == theirs.shape and (mine[:, 0] == theirs[:, 0]).all()


@pytest.mark.parametrize("mode", [*MODES, "SameStep"])
def test_a_vector_of_ones_own(mode: Any) -> None:
    env = from_gymnasium(Counts(AutoresetMode(mode)), max_episode_steps=LIMIT)
    assert (env.name, env.observation_size, env.action_high) == ("Counts", 2, (2.0,))
    played = evaluate(env, half, None, jax.random.key(0), 6)
    steps = np.asarray(played.lengths)
    assert len(set(steps.tolist())) > 1 and played.terminated.all()
    np.testing.assert_array_equal(played.returns, steps * (steps + 1) / 2 + steps)
    rows = collect(env, half, None, jax.random.key(0), episodes=6)
    last = rows.next_observations[rows.terminations]
    np.testing.assert_array_equal(last[:, 0], last[:, 1])
    with pytest.raises(ConfigError, match="Counts.*give a function that makes one sub-environment"):
        offline.train_online(env, steps=10)


def test_modes_of_two_vectors_of_one_class() -> None:
    """Gymnasium's metadata are shared by them and say what the last one was made with."""
    first, second = sync(AutoresetMode.SAME_STEP)(), sync(AutoresetMode.DISABLED)()
    assert first.metadata["autoreset_mode"] == second.metadata["autoreset_mode"]
    for vector in (first, second):
        env = from_gymnasium(vector, max_episode_steps=LIMIT)
        rows = collect(env, half, None, jax.random.key(1), episodes=4)
        last = rows.next_observations[rows.terminations]
        assert len(last) == 4 and (last[:, 0] == last[:, 1]).all()


def test_time_limit_and_name_are_those_of_the_sub_environments() -> None:
    gymnasium.register("test/Count-v0", Count, max_episode_steps=3)
    try:
        for vector in (
            gymnasium.make_vec("test/Count-v0", 2),
            gymnasium.wrappers.vector.RecordEpisodeStatistics(sync(AutoresetMode.NEXT_STEP)()),
        ):
            wrapped = isinstance(vector, gymnasium.vector.VectorWrapper)
            env = from_gymnasium(vector, max_episode_steps=4 if wrapped else None)
            assert env.name == ("Count" if wrapped else "gymnasium/test/Count-v0")
            assert env.max_episode_steps == (4 if wrapped else 3)
            assert (env.another is None) == wrapped
            played = evaluate(env, half, None, jax.random.key(2), 3)
            steps = np.asarray(played.lengths)
            assert steps.max() <= env.max_episode_steps
            np.testing.assert_array_equal(played.returns, steps * (steps + 1) / 2 + steps)
        with pytest.raises(ConfigError, match="no time limit"):
            make(sync(AutoresetMode.NEXT_STEP))
    finally:
        del gymnasium.registry["test/Count-v0"]


def test_processes_of_their_own() -> None:
    made = []

    def both() -> Any:
        made.append(gymnasium.vector.AsyncVectorEnv([Count] * 2, context="spawn"))
        return made[-1]

    try:
        env = from_gymnasium(both, max_episode_steps=LIMIT)
        played = evaluate(env, half, None, jax.random.key(2), 2)
    finally:
        for vector in made:
            vector.close()
    steps = np.asarray(played.lengths)
    np.testing.assert_array_equal(played.returns, steps * (steps + 1) / 2 + steps)
    assert len(made) == 1 and env.another is not None


def test_trainings_keep_the_state_of_single_sub_environments() -> None:
    envs = (
        keeping(from_gymnasium(env, max_episode_steps=LIMIT))
        for env in (Count, sync(AutoresetMode.SAME_STEP))
    )
    found = []
    for env in envs:
        state = env.reset(jax.random.key(5), 3)
        state, out = env.step(jax.random.key(6), state, np.full((3, 1), 0.5, np.float32))
        found.append((state.observation, out.reward))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(found[1][1], np.full(3, 2.0))


def wrong(mode: Any, **methods: Any) -> Any:
    return type("Wrong", (Counts,), methods)(mode)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (lambda: wrong(None), r"Wrong: metadata\[\"autoreset_mode\"\]: found None, expected NEXT_"),
        (
            lambda: wrong(MODES[0], single_action_space=gymnasium.spaces.Discrete(3)),
            "Discrete actions",
        ),
        (
            lambda: wrong(MODES[0], step=lambda s, a: (s.state, 1.0, s.ended, s.ended, {})),
            r"reward: shape \(\), expected 4 numbers",
        ),
        (
            lambda: wrong(MODES[0], step=lambda s, a: (s.state[:2], s.ended, s.ended, s.ended, {})),
            "2 rows, expected 4 observations of Box",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_compiles(env: Any, says: str) -> None:
    with pytest.raises((ConfigError, SimulatorError), match=says):
        from_gymnasium(env(), max_episode_steps=LIMIT)


def without_last(self: Counts, actions: np.ndarray) -> Any:
    return *Counts.step(self, actions)[:4], {}


def resets_all(self: Counts, *, seed: Any = None, options: Any = None) -> Any:
    return Counts.reset(self, seed=seed)


@pytest.mark.parametrize(
    ("mode", "methods", "says"),
    [
        (AutoresetMode.SAME_STEP, {"step": without_last}, r"no last observation.*final_obs"),
        (AutoresetMode.DISABLED, {"reset": resets_all}, "after a reset of other rows.*reset_mask"),
    ],
)
def test_a_mode_that_is_not_kept_is_found(mode: Any, methods: Any, says: str) -> None:
    env = from_gymnasium(wrong(mode, **methods), max_episode_steps=LIMIT)
    with pytest.raises(SimulatorError, match=says):
        evaluate(env, half, None, jax.random.key(0), 4)
