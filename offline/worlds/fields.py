"""Members of a world model that are networks on fields: an actuated PDE as a world.

An observation is a field, C channels on a grid, channel by channel; actions exert a force on it,
which the network sees as one more channel:

    [u, f, 0 ...] [2 C + 2, *grid]  ->  mean of the change, its log-variance [C, *grid each],
                                        reward and its log-variance, means over the grid

Any network that `pde` has a name for will do. A channel is scaled as a whole, as a scale for every
point would not be the same everywhere.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl_rollouts.configs import chosen, positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.field_networks import FIRST_INDEX, NAMES, NETWORKS, FieldNetwork, FieldShape
from jaxrl_rollouts.fitting import bounded
from jaxrl_rollouts.networks import Network, from_linen
from jaxrl_rollouts.registry import Registry
from jaxrl_rollouts.scaler import Scaler

Forcing = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True)
class Mlp:
    """A perceptron of the ensemble's own settings: `hidden_dims`, `activation` and so on."""


MEMBERS = Registry("network", NETWORKS.group, {"mlp": f"{__name__}:Mlp", **NAMES})


@dataclass(frozen=True)
class FieldEnsemble(EnsembleConfig):
    """A Gaussian ensemble whose members may be networks on fields.

    Attributes:
        network: network of a member: `mlp`, or on fields `resnet`, `fno` or another name that `pde`
            has.
        grid: points of every axis of the fields; left empty, one axis with all observations.
        boundaries: boundaries of every axis, `periodic` or another of `pde`'s kinds; left empty,
            periodic.
    """

    network: Any = chosen(MEMBERS, Mlp)
    grid: tuple[int, ...] = positive(())
    boundaries: tuple[str, ...] = ()


class _GaussianField(nn.Module):
    """`[..., S + A]` to mean and log-variance, each `[..., S + 1]`.

    Attributes:
        config: bounds of the log-variance.
        net: on `2 C + 2` channels.
        forcing: force of every action at 1; None where it is learned.
        actions: `A`.
    """

    config: EnsembleConfig
    net: FieldNetwork
    forcing: Forcing | None
    actions: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        assert self.net.shape is not None
        grid, wide = self.net.shape.grid, self.net.shape.channels
        channels, points = wide // 2 - 1, math.prod(grid)
        if self.config.input_clip is not None:
            x = jnp.clip(x, -self.config.input_clip, self.config.input_clip)
        known = None if self.forcing is None else self.forcing(jnp.eye(self.actions))
        shown = jnp.zeros((self.actions, points)) if known is None else known
        # Held with the parameters: a saved world needs no environment.
        forces = self.param("forces", lambda _: shown)
        forces = forces if known is None else jax.lax.stop_gradient(forces)
        params = self.param("net", self.net.init)

        def one(row: jax.Array) -> tuple[jax.Array, jax.Array]:
            field, action = row[: channels * points], row[channels * points :]
            seen = jnp.zeros((wide, *grid)).at[:channels].set(field.reshape(channels, *grid))
            seen = seen.at[channels].set((action @ forces).reshape(grid))
            nothing = jnp.zeros_like(seen), FIRST_INDEX, jnp.zeros((0,))
            out = self.net.apply(params, seen, *nothing).reshape(wide, points)
            rewards = out[2 * channels :].mean(1, keepdims=True)
            parts = out[:channels].reshape(-1), out[channels : 2 * channels].reshape(-1)
            mean, log_var = (jnp.append(x, r) for x, r in zip(parts, rewards, strict=True))
            return mean, log_var

        mean, log_var = jax.vmap(one)(x.reshape(-1, x.shape[-1]))
        mean, log_var = (y.reshape(*x.shape[:-1], -1) for y in (mean, log_var))
        return bounded(self, self.config, mean, log_var)


@functools.lru_cache(maxsize=16)
def _member(config: FieldEnsemble, states: int, actions: int, forcing: Forcing | None) -> Network:
    grid = config.grid or (states,)
    channels, rest = divmod(states, math.prod(grid))
    if rest or not channels:
        expected = f"points of axes whose product divides the {states} observations"
        raise ConfigError("world.grid", list(config.grid), expected)
    shape = FieldShape(2 * channels + 2, grid, boundaries=config.boundaries)
    net = config.network.make(shape)._replace(shape=shape)
    example = jax.ShapeDtypeStruct((1, states + actions), jnp.float32)
    return from_linen(_GaussianField(config, net, forcing, actions), example)


def pooled(scaler: Scaler, states: int, channels: int) -> Scaler:
    """A scaler whose first `states` columns have one scale for each channel."""
    mean, std = (x[:states].reshape(channels, -1) for x in scaler)
    whole = mean.mean(1, keepdims=True)
    spread = jnp.sqrt((std**2 + (mean - whole) ** 2).mean(1, keepdims=True))
    both = (jnp.broadcast_to(x, mean.shape).reshape(-1) for x in (whole, spread))
    return Scaler(*(x.at[:states].set(y) for x, y in zip(scaler, both, strict=True)))


def on_fields(
    config: FieldEnsemble, inputs: Scaler, targets: Scaler, forcing: Forcing | None
) -> tuple[Scaler, Scaler, Network]:
    """Scalers with one scale for each channel, actions as they are, and a member.

    Args:
        config: the network on fields.
        inputs, targets: scalers of every column, `[S + A]` and `[S + 1]`.
        forcing: force of actions on the grid, `[..., A] -> [..., N]`; None learns it.

    Raises:
        ConfigError: a grid that does not fit the observations, or settings out of range.
    """
    states = targets.mean.shape[0] - 1
    actions = inputs.mean.shape[0] - states
    member = _member(config, states, actions, forcing)
    channels = states // math.prod(config.grid or (states,))
    scaled = pooled(inputs, states, channels)
    # No action is no force: its zero stays.
    mean, std = scaled.mean.at[states:].set(0.0), scaled.std.at[states:].set(1.0)
    return Scaler(mean, std), pooled(targets, states, channels), member
