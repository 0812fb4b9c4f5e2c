"""Environments of this package for programs that play Gymnasium's.

import gymnasium
import jaxrl_rollouts.offline.environments.as_gymnasium  # registers the embedded ones

env = gymnasium.make("jaxrl_rollouts/ks_control-v0")
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import MissingExtraError

from .base import Environment
from .registry import EMBEDDED, make

try:
    import gymnasium
except ImportError as error:
    raise MissingExtraError("playing through Gymnasium", "gymnasium", "gymnasium") from error


class Played(gymnasium.Env):
    """One copy of an `Environment`, stepped by a compiled program.

    Observations are float32 vectors. Actions are in the environment's own units, within its bounds.

    Args:
        environment: it, or its name (see `make`).
    """

    metadata = {"render_modes": []}

    def __init__(self, environment: Environment | str) -> None:
        self.environment = made = make(environment)
        ones = (1.0,) * made.action_size
        low = np.asarray(made.action_low or [-x for x in ones], np.float32)
        high = np.asarray(made.action_high or ones, np.float32)
        shape = (made.observation_size,)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self._middle, self._half = (high + low) / 2, (high - low) / 2
        self._reset = jax.jit(made.reset, static_argnums=1)
        self._step = jax.jit(made.step)
        self._state: Any = None
        self._key = jax.random.key(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; the same seed begins the same one and those that follow it."""
        super().reset(seed=seed)
        start_key, self._key = jax.random.split(jax.random.key(int(self.np_random.integers(2**32))))
        self._state = self._reset(start_key, 1)
        return self._observed(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step, `(observation, reward, terminated, truncated, {})`."""
        scaled = (np.asarray(action, np.float32) - self._middle) / self._half
        step_key, self._key = jax.random.split(self._key)
        self._state, out = self._step(step_key, self._state, jnp.asarray(scaled)[None])
        ended = bool(out.terminated[0]), bool(out.truncated[0])
        return self._observed(), float(out.reward[0]), *ended, {}

    def _observed(self) -> np.ndarray:
        return np.asarray(self.environment.observe(self._state)[0], np.float32)


def register() -> None:
    """Register every embedded environment as `jaxrl_rollouts/NAME-v0`."""
    for name, env in EMBEDDED.items():
        gymnasium.register(
            f"jaxrl_rollouts/{name}-v0",
            entry_point=Played,
            max_episode_steps=env.max_episode_steps,
            kwargs={"environment": name},
        )


register()
