"""How much of an optimistic value survives where it is never corrected, in closed form.

A chain pays the same reward in every state. Data cover its first `covered` transitions; model
rollouts of `horizon` steps start from any state of the data, the last one included, and every
state they leave is updated with a one-step target. The state they end in never is: it keeps its
initial, too high value, and the error comes back damped by the discount once per step. Long
rollouts move that edge away, so values are right without any conservatism (Ni et al. 2025, NEUBAY).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl_rollouts.errors import ConfigError


def _check(horizon: int, discount: float, covered: int) -> None:
    for name, found in (("horizon", horizon), ("covered", covered)):
        if found < 1:
            raise ConfigError(name, found, "at least 1")
    if not 0 <= discount < 1:
        raise ConfigError("discount", discount, "in [0, 1)")


def bootstrap_bias(
    horizon: int, discount: float, *, covered: int = 5, reward: float = 0.5
) -> jax.Array:
    """Estimated minus true value of the covered states, `[covered]`, at the fixed point.

    `discount^(horizon + covered - i) (Q0 - V*)` for state `i`, with `Q0 = 1 / (1 - discount)`, as
    if every reward were 1, and `V* = reward / (1 - discount)`.

    Raises:
        ConfigError: an argument is out of range.
    """
    _check(horizon, discount, covered)
    distance = horizon + covered - jnp.arange(covered)
    return discount**distance * (1.0 - reward) / (1.0 - discount)


def learned_bias(
    horizon: int,
    discount: float,
    *,
    covered: int = 5,
    reward: float = 0.5,
    sweeps: int | None = None,
) -> jax.Array:
    """The same by temporal differences on imagined rollouts, `[covered]`.

    Every sweep rolls the (true) chain `horizon` steps from each state of the data and updates
    what it passes; the default is as many sweeps as there are updated states, which is enough.

    Raises:
        ConfigError: an argument is out of range.
    """
    _check(horizon, discount, covered)
    states = covered + horizon + 1
    starts = jnp.arange(covered + 1)
    optimistic = jnp.full((states,), 1.0 / (1.0 - discount))

    def sweep(_: int, values: jax.Array) -> jax.Array:
        def step(t: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            values, updated = carry
            passed = starts + t
            return values, updated.at[passed].set(reward + discount * values[passed + 1])

        return jax.lax.fori_loop(0, horizon, step, (values, values))[1]

    values = jax.lax.fori_loop(0, sweeps or states, sweep, optimistic)
    return values[:covered] - reward / (1.0 - discount)
