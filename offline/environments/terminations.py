"""Known termination functions, in JAX, by environment family.

Offline model-based methods (MOPO, MOBILE, RAVL) end model rollouts by the simulator's own rule
instead of learning it. The rules are Gymnasium's v2 to v4, evaluated on the next observation.
Every function is `(observation [..., S], action, next_observation [..., S]) -> [...] bool`.

A rule reads columns by their place, so it holds for one layout of observations only. NeoRL's
Hopper and Walker2d have the x position first: the number of columns selects the rule.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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


def hopper_from_x(
    observation: jax.Array, action: jax.Array, next_observation: jax.Array
) -> jax.Array:
    """`hopper` of observations with the x position first, which no rule bounds."""
    x = next_observation
    return hopper(observation, action, x[..., 1:]) | ~jnp.isfinite(x[..., 0])


def walker2d_from_x(
    observation: jax.Array, action: jax.Array, next_observation: jax.Array
) -> jax.Array:
    """`walker2d` of observations with the x position first."""
    return walker2d(observation, action, next_observation[..., 1:])


def ant_from_xy(
    observation: jax.Array, action: jax.Array, next_observation: jax.Array
) -> jax.Array:
    """`ant` of observations with the x and y positions first."""
    x = next_observation
    return ant(observation, action, x[..., 2:]) | ~jnp.isfinite(x[..., :2]).all(-1)


def pen(observation: jax.Array, action: jax.Array, next_observation: jax.Array) -> jax.Array:
    """Adroit's pen below 0.075 m: it was dropped (its position is in columns 24 to 26)."""
    return ~(next_observation[..., 26] >= 0.075)


@functools.lru_cache(maxsize=64)
def within(goal: tuple[float, ...], radius: float) -> Termination:
    """The first columns of the next observation lie within `radius` of `goal`."""

    def reached(
        observation: jax.Array, action: jax.Array, next_observation: jax.Array
    ) -> jax.Array:
        away = next_observation[..., : len(goal)] - jnp.asarray(goal)
        return (away**2).sum(-1) <= radius**2

    return reached


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

# D4RL's other tasks by name: columns and rule. Kitchen's ends are learned; AntMaze's are at a goal.
TASKS: tuple[tuple[str, int, Termination], ...] = (
    (r"pen(-(human|cloned|expert))?-v[01]", 45, pen),
    (r"(door|relocate)(-(human|cloned|expert))?-v[01]", 39, never),
    (r"hammer(-(human|cloned|expert))?-v[01]", 46, never),
    (r"maze2d-[a-z]+(-dense)?-v[01]", 4, never),
)
ANTMAZE = re.compile(r"antmaze-[a-z-]+-v[0-2]")
GOAL_RADIUS = 0.5  # of D4RL's mazes

# Columns of an observation: the rule for that layout. Families without an entry end nowhere, or
# have one layout.
LAYOUTS: dict[str, dict[int, Termination]] = {
    # 105 and 107 of version 5, 111 and 113 of version 2: with contact forces
    "ant": {27: ant, 105: ant, 111: ant, 29: ant_from_xy, 107: ant_from_xy, 113: ant_from_xy},
    "hopper": {11: hopper, 12: hopper_from_x},
    "inverteddoublependulum": {9: inverted_double_pendulum, 11: inverted_double_pendulum},
    "invertedpendulum": {4: inverted_pendulum},
    "walker2d": {17: walker2d, 18: walker2d_from_x},
}
PLACED = "exclude_current_positions_from_observation=false"
# Columns of MuJoCo's observations without and with the positions that Gymnasium leaves out.
WITH_POSITIONS = {
    "ant": (27, 29),
    "halfcheetah": (17, 18),
    "hopper": (11, 12),
    "walker2d": (17, 18),
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


def termination_function(name: str, columns: int | None = None) -> Termination:
    """The known termination rule of an environment or dataset."""
    for pattern, width, rule in TASKS:
        if re.fullmatch(pattern, name):
            return _of_layout(name, columns, {width: rule}, rule)
    kind = family(name)
    found = None if name.lower().startswith("brax/") else FAMILIES.get(kind)
    if found is None:
        close = difflib.get_close_matches(kind, FAMILIES, 1)
        hint = f"did you mean {close[0]}?" if close else ""
        raise ConfigError("termination", name, f"one of {', '.join(FAMILIES)}", hint)
    return _of_layout(name, columns, LAYOUTS.get(kind), found)


def _of_layout(
    name: str, columns: int | None, layouts: dict[int, Termination] | None, usual: Termination
) -> Termination:
    if columns is None or layouts is None:
        return usual
    if columns not in layouts:
        widths = ", ".join(map(str, layouts))
        raise WrongLayoutError(
            f"termination of {name}: observation columns",
            columns,
            f"one of {widths}, whose rule is known",
            "termination=learned (--study.termination learned) learns the ends from the data",
        )
    return layouts[columns]


def goal_of(name: str, rows: Any) -> Termination | None:
    """The rule that AntMaze ends at its goal, which is where the episodes of the data end.

    Returns:
        The rule; None for other tasks, without ends, and where these lie further apart than a goal
        is wide.
    """
    ends = np.asarray(rows.terminations, bool)
    if not ANTMAZE.fullmatch(name) or not ends.any():
        return None
    places = np.asarray(rows.next_observations)[ends, :2].astype(np.float64)
    goal = 0.5 * (places.min(0) + places.max(0))
    if np.linalg.norm(places - goal, axis=1).max() > 1.2 * GOAL_RADIUS:
        return None
    return within(tuple(goal.tolist()), GOAL_RADIUS)


class WrongLayoutError(ConfigError):
    """A family's rule is known, and not for this number of observation columns."""


def known_rule(name: str, columns: int) -> Termination | None:
    """`termination_function`, or None where no rule is known."""
    try:
        return termination_function(name, columns)
    except ConfigError:
        return None
