"""Known termination functions, in JAX, by environment family.

Offline model-based methods (MOPO, MOBILE, RAVL) end model rollouts by the simulator's own rule
instead of learning it. The rules are Gymnasium's v2 to v4, evaluated on the next observation.
Every function is `(observation [..., S], action, next_observation [..., S]) -> [...] bool`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import ConfigError

Termination = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def never(observation: jax.Array, action: jax.Array, next_observation: jax.Array) -> jax.Array:
    """No transition terminates (of MuJoCo's: HalfCheetah, Pusher, Reacher, Swimmer)."""
    return jnp.zeros(next_observation.shape[:-1], bool)


def hopper(observation: jax.Array, action: jax.Array, next_observation: jax.Array) -> jax.Array:
    """Not finite, any of `x[1:]` at or beyond 100, height <= 0.7 or |angle| >= 0.2."""
    x = next_observation
    # The absolute value belongs inside: all(abs(x < 100)) would accept -1e6.
    bounded = (jnp.abs(x[..., 1:]) < 100).all(-1) & jnp.isfinite(x).all(-1)
    return ~(bounded & (x[..., 0] > 0.7) & (jnp.abs(x[..., 1]) < 0.2))


def walker2d(observation: jax.Array, action: jax.Array, next_observation: jax.Array) -> jax.Array:
    """Height outside (0.8, 2) or |angle| >= 1; NaN counts as outside."""
    height, angle = next_observation[..., 0], next_observation[..., 1]
    return ~((height > 0.8) & (height < 2.0) & (jnp.abs(angle) < 1.0))


def ant(observation: jax.Array, action: jax.Array, next_observation: jax.Array) -> jax.Array:
    """Not finite, or height outside [0.2, 1] (observations without contact forces or x, y)."""
    x = next_observation
    return ~(jnp.isfinite(x).all(-1) & (x[..., 0] >= 0.2) & (x[..., 0] <= 1.0))


def inverted_pendulum(
    observation: jax.Array, action: jax.Array, next_observation: jax.Array
) -> jax.Array:
    """Not finite, or |angle| > 0.2."""
    x = next_observation
    return ~jnp.isfinite(x).all(-1) | (jnp.abs(x[..., 1]) > 0.2)


def inverted_double_pendulum(
    observation: jax.Array, action: jax.Array, next_observation: jax.Array
) -> jax.Array:
    """The tip, two poles of 0.6 above the cart, at or below 1; NaN counts as below.

    After the cart's place come sines and cosines of the lower pole's angle and of the joint's.
    """
    s1, s2, c1, c2 = (next_observation[..., i] for i in range(1, 5))
    return ~(0.6 * (c1 + c1 * c2 - s1 * s2) > 1.0)


def runner(observation: jax.Array, action: jax.Array, next_observation: jax.Array) -> jax.Array:
    """|angle| > 0.25 rad or |speed| > 4 m/s; NaN counts as fallen."""
    speed, angle = next_observation[..., 0], next_observation[..., 1]
    return ~((jnp.abs(angle) <= 0.25) & (jnp.abs(speed) <= 4.0))


FAMILIES: dict[str, Termination] = {
    "ant": ant,
    "halfcheetah": never,
    "hopper": hopper,
    "inverteddoublependulum": inverted_double_pendulum,
    "invertedpendulum": inverted_pendulum,
    "pendulum": never,
    "plane": never,
    "pusher": never,
    "acrobot": never,
    "kscontrol": never,
    "reacher": never,
    "runner": runner,
    "swimmer": never,
    "walker2d": walker2d,
}


def family(name: str) -> str:
    """The family in an environment or dataset name.

    `"HalfCheetah-v4"`, `"mujoco/HalfCheetah-v4"`, `"halfcheetah-medium-v2"` and
    `"halfcheetah-mixed"` are all `"halfcheetah"`, and `"inverted-double-pendulum-mixed"` is
    `"inverteddoublependulum"`; an unknown name gives its first word.
    """
    plain = name.lower().replace("_", "")
    plain = re.sub(r"inverted-(double-)?pendulum", lambda m: m[0].replace("-", ""), plain)
    words = [word for word in re.split(r"[/\-]", plain) if word]
    return next((word for word in words if word in FAMILIES), words[0] if words else name)


def termination_function(name: str) -> Termination:
    """The known termination rule of an environment or dataset.

    Raises:
        ConfigError: no rule is known for `name`. brax has simulators of its own whose rules
            differ from Gymnasium's, so its names are unknown here.
    """
    found = None if name.lower().startswith("brax/") else FAMILIES.get(family(name))
    if found is None:
        close = difflib.get_close_matches(family(name), FAMILIES, 1)
        hint = f"did you mean {close[0]}?" if close else ""
        raise ConfigError("termination", name, f"one of {', '.join(FAMILIES)}", hint)
    return found
