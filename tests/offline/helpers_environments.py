"""A tiny Gymnasium environment of one's own: a cart on a line, bounds of +-0.4, in numpy."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

LOW, HIGH = -0.4, 0.4


class Cart(gymnasium.Env):
    """Push a cart to the origin; too far away ends the episode."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(LOW, HIGH, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-0.5, 0.5, 2)
        return self.state.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(np.float32(action)), action
        place, speed = self.state
        speed = speed + float(action[0])
        self.state = np.array([place + 0.2 * speed, speed])
        reward = -float(self.state[0] ** 2)
        return self.state.copy(), reward, bool(abs(place) > 1.5), False, {}


class Shapes(Cart):
    """The same with spaces of other kinds."""

    def __init__(self, observations: Any = None, actions: Any = None) -> None:
        self.observation_space = observations or self.observation_space
        self.action_space = actions or self.action_space


def cart_factory() -> gymnasium.Env:
    """What `helpers_environments:cart_factory` names."""
    return gymnasium.wrappers.TimeLimit(Cart(), 15)


def played(steps: int = 60) -> dict[str, np.ndarray]:
    """What a user records: a loop over Gymnasium, actions in the environment's own units."""
    env, rng = cart_factory(), np.random.default_rng(0)
    rows: list[tuple] = []
    observation, _ = env.reset(seed=0)
    for _ in range(steps):
        action = rng.uniform(LOW, HIGH, 1).astype(np.float32)
        following, reward, terminated, truncated, _ = env.step(action)
        rows.append((observation, action, reward, following, terminated, truncated))
        observation = env.reset()[0] if terminated or truncated else following
    names = "observations", "actions", "rewards", "next_observations", "terminals", "timeouts"
    return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
