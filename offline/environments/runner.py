"""The runner: a cart that is rewarded for its speed while it balances a pole, pure JAX.

Gymnasium's cart-pole equations (Barto, Sutton & Anderson 1983; Florian 2007) with a force of
`10 a - v` N, Euler steps of 0.04 s and a reward for speed in place of staying alive: faster is
better until the pole falls. Observations are the cart's speed (m/s), the pole's angle (rad) and
its angular speed; where the cart is does not matter and is not seen.

`HIDDEN_RUNNER` is the same with another cart and another pole in every episode, which are not seen
either: only a memory of what actions did shows them. Of `WIRED_RUNNER` every other motor
is wired the wrong way round, too.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl_rollouts.rollouts import StepResult

from .base import Environment, EnvironmentState, begin, observe, proceed, uniform_start
from .terminations import runner as fallen

CART, POLE, HALF_LENGTH, GRAVITY = 1.0, 0.1, 0.5, 9.8  # kg, kg, m, m/s^2
FORCE, FRICTION, DT = 10.0, 1.0, 0.04
TOP_SPEED = 2.0  # m/s that the reward grows up to
START = 0.05  # all three numbers start uniform in [-START, START]
MAX_EPISODE_STEPS = 200
SCALES = (0.7, 1.4)  # of the hidden runner's masses and length, log-uniform


class Build(NamedTuple):
    """What a runner is made of; numbers, or `[...]` each.

    Attributes:
        cart, pole: masses, kg.
        half_length: half length of the pole, m.
        motor: sign of the force for a positive action, 1 or -1.
    """

    cart: jax.Array | float = CART
    pole: jax.Array | float = POLE
    half_length: jax.Array | float = HALF_LENGTH
    motor: jax.Array | float = 1.0


STANDARD = Build()


def advance(inner: jax.Array, action: jax.Array, build: Build = STANDARD) -> jax.Array:
    """One Euler step of `[..., 3]` states under `[...]` actions in [-1, 1]."""
    speed, angle, turning = inner[..., 0], inner[..., 1], inner[..., 2]
    force = FORCE * build.motor * jnp.clip(action, -1.0, 1.0) - FRICTION * speed
    sine, cosine, total = jnp.sin(angle), jnp.cos(angle), build.cart + build.pole
    push = (force + build.pole * build.half_length * turning**2 * sine) / total
    lever = build.half_length * (4.0 / 3.0 - build.pole * cosine**2 / total)
    tip = (GRAVITY * sine - cosine * push) / lever
    along = push - build.pole * build.half_length * tip * cosine / total
    return jnp.stack([speed + DT * along, angle + DT * turning, turning + DT * tip], -1)


def reward(observation: jax.Array, action: jax.Array, next_observation: jax.Array) -> jax.Array:
    """`0.5 + 0.5 v'`, the speed within +-2: at most 1.5, below zero when rolling backwards."""
    return 0.5 + 0.5 * jnp.clip(next_observation[..., 0], -TOP_SPEED, TOP_SPEED)


def reset(key: jax.Array, batch: int) -> EnvironmentState:
    """Nearly upright and nearly at rest."""
    start = uniform_start(key, batch, jnp.full(3, START))
    return begin(start, start)


def step(
    key: jax.Array, state: EnvironmentState, action: jax.Array, build: Build = STANDARD
) -> tuple[EnvironmentState, StepResult]:
    """Advance `[B, 3]` states; the episode ends when the pole falls or the cart is too fast."""
    following = advance(state.inner, action[:, 0], build)
    paid = reward(state.inner, action, following)
    ended = fallen(state.inner, action, following)
    return proceed(state, following, following, paid, ended, MAX_EPISODE_STEPS)


def set_observation(observation: jax.Array) -> EnvironmentState:
    """The state behind `[B, 3]` observations, at time zero."""
    return begin(observation, observation)


RUNNER = Environment(
    "runner",
    3,
    1,
    MAX_EPISODE_STEPS,
    reset,
    step,
    observe,
    termination=fallen,
    reward=reward,
    set_observation=set_observation,
    version="embedded",
)


class HiddenState(NamedTuple):
    """What is seen, `[B, 3]`, and what is not."""

    seen: jax.Array
    build: Build


def draw_builds(key: jax.Array, batch: int) -> Build:
    """Carts and poles, `[batch]` each, with motors as usual; `key` as for `reset`."""
    low, high = jnp.log(jnp.array(SCALES))
    # Uniform within +-1, of each row's own key.
    drawn = uniform_start(key, batch, jnp.ones(3))
    scales = jnp.exp(low + (high - low) * 0.5 * (drawn + 1.0)).T
    return Build(*(jnp.array(STANDARD[:3])[:, None] * scales), motor=jnp.ones(batch))


def reset_hidden(key: jax.Array, batch: int) -> EnvironmentState:
    """Every row a runner of its own, nearly upright and nearly at rest."""
    start_key, build_key = (_both(key, i) for i in range(2))
    start = uniform_start(start_key, batch, jnp.full(3, START))
    return begin(HiddenState(start, draw_builds(build_key, batch)), start)


def reset_wired(key: jax.Array, batch: int) -> EnvironmentState:
    """The same, each motor either way."""
    state = reset_hidden(key, batch)
    way = jnp.sign(uniform_start(_both(key, 2), batch, jnp.ones(1))[:, 0])
    inner = state.inner._replace(build=state.inner.build._replace(motor=way))
    return state._replace(inner=inner)


def _both(key: jax.Array, index: int) -> jax.Array:
    """A key, or `[K]` of them, for one of several purposes."""
    fold = jax.random.fold_in
    return fold(key, index) if key.ndim == 0 else jax.vmap(lambda k: fold(k, index))(key)


def step_hidden(
    key: jax.Array, state: EnvironmentState, action: jax.Array
) -> tuple[EnvironmentState, StepResult]:
    """`step` of these carts and poles."""
    seen, build = state.inner
    following = advance(seen, action[:, 0], build)
    paid, ended = reward(seen, action, following), fallen(seen, action, following)
    after = HiddenState(following, build)
    return proceed(state, after, following, paid, ended, MAX_EPISODE_STEPS)


HIDDEN_RUNNER = RUNNER._replace(
    name="runner-hidden", reset=reset_hidden, step=step_hidden, set_observation=None
)
WIRED_RUNNER = HIDDEN_RUNNER._replace(name="runner-wired", reset=reset_wired)
