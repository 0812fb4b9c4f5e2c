"""The Kuramoto-Sivashinsky equation with actuators: a chaotic field to be calmed, pure JAX.

    u_t = - u u_x - u_xx - u_xxxx + f,    f(x, t) = p sum_i a_i g(x - x_i),    u(x + L) = u(x)

Jets are Gaussians `g(d) = exp(-d^2 / (2 s^2))` at `x_i = (i + 1/2) L / A`; actions `a` in [-1, 1]
are held for 0.25 time units, five steps of ETDRK4 with the 2/3 rule. The energy obeys

    d/dt <u^2> / 2 = <u_x^2> - <u_xx^2> + <u f>      (production, dissipation, power; <.> over x).

`ks_control` has the settings of Zeng & Graham (2021, "Symmetry reduction for deep reinforcement
learning active control of chaotic spatiotemporal dynamics") and of DManD-RL (Zeng, Linot & Graham
2022): L 22, four jets of width 0.4, reward `-(<u_xx^2> + <u_x^2> + <u f>)`, here of the field after
the hold. Mean returns of 400 steps: -735 without control, -400 under `a_i = -4 u(x_i)`. Four
such jets do not reach every unstable wave of `u = 0`; the eight of `ks_control-eight` do.
`ks_control-wide` has jets of width 0.8 without a mean and the reward `-<u^2> - 0.1 <a^2>`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.etdrk import Etdrk4, etdrk4, wavenumbers
from jaxrl_rollouts.rollouts import where_rows

from .base import (
    Environment,
    EnvironmentState,
    begin,
    observe,
    proceed,
    row_keys,
    uniform_start,
)
from .terminations import never

if TYPE_CHECKING:
    from jaxrl_rollouts.rollouts import StepResult

EFFORT = 0.1  # weight of <a^2> in the reward "energy"


class KsControl(NamedTuple):
    """Settings of one actuated Kuramoto-Sivashinsky equation.

    Attributes:
        name: name of the environment.
        extent, points: `L`, and grid points, all of which are observed.
        jets: `A`.
        width: `s`, standard deviation of a jet.
        peak: `p`, of a jet at full action.
        centred: whether a jet's mean over x is taken off. Jets with a mean move `<u>`.
        reward: `dissipation`, `-(<u_xx^2> + <u_x^2> + <u f>)`, or `energy`, `-<u^2> - 0.1 <a^2>`,
            both of the field after the step.
        start: `noise`, uniform in +-0.4 at every point, or `waves`, the four longest with normal
            amplitudes; their mean over x is zero.
        settle: steps without control between that and the first observation.
        dt, substeps: time step of the scheme, and how many an action is held.
        max_episode_steps: time limit.
    """

    name: str = "ks_control"
    extent: float = 22.0
    points: int = 64
    jets: int = 4
    width: float = 0.4
    peak: float = 0.5
    centred: bool = False
    reward: Literal["dissipation", "energy"] = "dissipation"
    start: Literal["noise", "waves"] = "noise"
    settle: int = 160
    dt: float = 0.05
    substeps: int = 5
    max_episode_steps: int = 400


FOUR = KsControl()
EIGHT = FOUR._replace(name="ks_control-eight", jets=8)
WIDE = FOUR._replace(
    name="ks_control-wide", width=0.8, centred=True, reward="energy", start="waves", settle=100
)


@functools.lru_cache(maxsize=16)
def jets(settings: KsControl) -> np.ndarray:
    """Force of each jet at full action on the grid, `[A, X]` float64."""
    x = np.arange(settings.points) * settings.extent / settings.points
    centres = (np.arange(settings.jets) + 0.5) * settings.extent / settings.jets
    apart = (x - centres[:, None] + settings.extent / 2) % settings.extent - settings.extent / 2
    force = settings.peak * np.exp(-(apart**2) / (2 * settings.width**2))
    return force - force.mean(1, keepdims=True) if settings.centred else force


@functools.lru_cache(maxsize=16)
def scheme(settings: KsControl) -> Etdrk4:
    """The time stepper, its coefficients in double precision."""
    k = wavenumbers(settings.points, settings.extent, np)
    linear = k**2 - k**4 + 0j
    return etdrk4(linear, 1.0, settings.points, settings.extent, settings.dt)


def _force(settings: KsControl, action: jax.Array) -> jax.Array:
    """The force `[..., X]` of actions `[..., A]`, clipped to [-1, 1]."""
    return jnp.clip(action, -1.0, 1.0) @ jnp.asarray(jets(settings), action.dtype)


def advance(settings: KsControl, field: jax.Array, action: jax.Array) -> jax.Array:
    """Fields `[..., X]` after actions `[..., A]` were held for one step of the environment."""
    pushed = jnp.fft.rfft(_force(settings, action))
    # Copied: jax keeps the precision in which it first saw a numpy array that is closed over.
    stepper = jax.tree.map(jnp.array, scheme(settings))
    return jax.lax.fori_loop(0, settings.substeps, lambda _, u: stepper(u, pushed), field)


class Balance(NamedTuple):
    """Terms of the energy's balance, means over x, `[...]` each."""

    production: jax.Array  # <u_x^2>
    dissipation: jax.Array  # <u_xx^2>
    power: jax.Array  # <u f>


def balance(settings: KsControl, field: jax.Array, action: jax.Array) -> Balance:
    """Production, dissipation and power of fields `[..., X]` under actions `[..., A]`.

    Derivatives are of the waves that the 2/3 rule keeps: those above hold next to nothing of a
    solution, and noise of a learned model there would grow with the fourth power of `k`.
    """
    k, kept = wavenumbers(settings.points, settings.extent, np), scheme(settings).kept
    # Parseval: all waves but the mean (and the highest, which is not kept) stand for two.
    power = 2.0 * jnp.square(jnp.abs(jnp.fft.rfft(field))) / settings.points**2
    weights = np.stack([kept * k**2, kept * k**4], 1)
    slopes = power @ jnp.asarray(weights, power.dtype)
    work = (field * _force(settings, action)).mean(-1)
    return Balance(slopes[..., 0], slopes[..., 1], work)


def _reward(settings: KsControl, field: jax.Array, action: jax.Array) -> jax.Array:
    """The reward `[...]` of actions that led to `field`."""
    if settings.reward == "energy":
        effort = jnp.square(jnp.clip(action, -1.0, 1.0)).mean(-1)
        return -jnp.square(field).mean(-1) - EFFORT * effort
    terms = balance(settings, field, action)
    return -(terms.dissipation + terms.production + terms.power)


def _begin(settings: KsControl, key: jax.Array, batch: int) -> jax.Array:
    """Fields `[batch, X]` before they settle; keys as for `Environment.reset`."""
    if settings.start == "noise":
        noise = uniform_start(key, batch, jnp.full(settings.points, 0.4))
        return noise - noise.mean(-1, keepdims=True)
    x = jnp.arange(settings.points) * 2 * jnp.pi / settings.points

    def waves(key: jax.Array) -> jax.Array:
        size_key, phase_key = jax.random.split(key)
        size = jax.random.normal(size_key, (4, 1))
        phase = jax.random.uniform(phase_key, (4, 1), maxval=2 * jnp.pi)
        return (size * jnp.cos(jnp.arange(1, 5)[:, None] * x + phase)).sum(0)

    return jax.vmap(waves)(row_keys(key, batch))


@functools.lru_cache(maxsize=16)
def ks_control(settings: KsControl = FOUR) -> Environment:
    """The environment of these settings; equal settings give the same one.

    Its state is the field `[B, X]` and all of it is observed. Episodes end at the time limit only.
    """

    def settled(field: jax.Array, steps: Any) -> jax.Array:
        still = jnp.zeros((settings.jets,), field.dtype)
        return jax.lax.fori_loop(0, steps, lambda _, u: advance(settings, u, still), field)

    def reset(key: jax.Array, batch: int) -> EnvironmentState:
        field = settled(_begin(settings, key, batch), settings.settle)
        return begin(field, field)

    def restart(key: jax.Array, state: EnvironmentState, ended: jax.Array) -> EnvironmentState:
        # No passes where no row ended: a condition under vmap would compute both of its branches.
        steps = jnp.where(ended.any(), settings.settle, 0)
        field = settled(_begin(settings, key, ended.shape[0]), steps)
        return where_rows(ended, begin(field, field), state)

    def step(
        key: jax.Array, state: EnvironmentState, action: jax.Array
    ) -> tuple[EnvironmentState, StepResult]:
        field = advance(settings, state.inner, action)
        reward = _reward(settings, field, action)
        over = jnp.zeros(action.shape[:1], bool)
        return proceed(state, field, field, reward, over, settings.max_episode_steps)

    def known(observation: jax.Array, action: jax.Array, next_observation: jax.Array) -> jax.Array:
        return _reward(settings, next_observation, action)

    return Environment(
        settings.name,
        settings.points,
        settings.jets,
        settings.max_episode_steps,
        reset,
        step,
        observe,
        termination=never,
        reward=known,
        set_observation=lambda observation: begin(observation, observation),
        version=f"embedded (Kuramoto-Sivashinsky, L {settings.extent:g}, {settings.jets} jets)",
        restart=restart,
        forcing=functools.partial(_force, settings),
    )


KS_CONTROL, KS_EIGHT, KS_WIDE = (ks_control(settings) for settings in (FOUR, EIGHT, WIDE))
