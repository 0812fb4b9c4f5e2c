"""Environments of this package for programs that play Gymnasium's.

import gymnasium
from jaxrl_rollouts.offline.environments import as_gymnasium

as_gymnasium.register()
env = gymnasium.make("jaxrl_rollouts/ks_control-v0", render_mode="rgb_array")
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError, MissingExtraError

from .base import Environment
from .drawings import painter
from .registry import EMBEDDED, make


def to_gymnasium(environment: Environment | str, render_mode: str | None = None) -> Any:
    """One copy of an environment as a `gymnasium.Env`, stepped by a compiled program.

    Observations are float32 vectors `[S]`. Actions `[A]` are in the environment's own units, within
    its bounds. The same seed of `reset` begins the same episode and those that follow it.

    Args:
        environment: it, or its name (see `make`).
        render_mode: `rgb_array`, with which `render` draws an embedded environment: a field over
            the time of the episode so far, of others the present state. None: no rendering.

    Raises:
        MissingExtraError: gymnasium is not installed.
        ConfigError: an unknown name; another mode, or an environment without a drawing.
    """
    if render_mode not in (None, "rgb_array"):
        raise ConfigError("render_mode", render_mode, "'rgb_array' or None")
    return _played()(make(environment), render_mode)


def register() -> None:
    """Register the embedded environments with Gymnasium, as `jaxrl_rollouts/NAME-v0`.

    Raises:
        MissingExtraError: gymnasium is not installed.
    """
    for name, env in EMBEDDED.items():
        label = f"jaxrl_rollouts/{name}-v0"
        if label not in _gymnasium().registry:
            _gymnasium().register(
                label,
                entry_point=to_gymnasium,
                max_episode_steps=env.max_episode_steps,
                kwargs={"environment": name},
            )


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise MissingExtraError("playing through Gymnasium", "gymnasium", "gymnasium") from error
    return gymnasium


@functools.cache
def _played() -> Any:
    """The class of what `to_gymnasium` makes, which cannot be written down without Gymnasium."""
    gymnasium = _gymnasium()

    class Played(gymnasium.Env):
        metadata = {"render_modes": ["rgb_array"], "render_fps": 25}

        def __init__(self, environment: Environment, render_mode: str | None) -> None:
            self.render_mode = render_mode
            self._paint = painter(environment.name) if render_mode else None
            self._seen: list[np.ndarray] = []
            ones = np.ones(environment.action_size, np.float32)
            low = np.asarray(environment.action_low or -ones, np.float32)
            high = np.asarray(environment.action_high or ones, np.float32)
            shape = (environment.observation_size,)
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
            self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
            self._middle, self._half = (high + low) / 2, (high - low) / 2
            self._begin = jax.jit(environment.reset, static_argnums=1)
            self._advance = jax.jit(environment.step)
            self._observe = environment.observe
            self._state: Any = None
            self._key = jax.random.key(0)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
            super().reset(seed=seed)
            key = jax.random.key(int(self.np_random.integers(2**32)))
            start_key, self._key = jax.random.split(key)
            self._state = self._begin(start_key, 1)
            self._seen.clear()
            return self._observed(), {}

        def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
            scaled = (np.asarray(action, np.float32) - self._middle) / self._half
            key, self._key = jax.random.split(self._key)
            self._state, out = self._advance(key, self._state, jnp.asarray(scaled)[None])
            ended = bool(out.terminated[0]), bool(out.truncated[0])
            return self._observed(), float(out.reward[0]), *ended, {}

        def _observed(self) -> np.ndarray:
            seen = np.asarray(self._observe(self._state)[0], np.float32)
            if self._paint:
                self._seen.append(seen)
            return seen

        def render(self) -> np.ndarray | None:
            return self._paint(self._seen) if self._paint else None

    return Played
