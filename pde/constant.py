"""Channels that are constant in time: a force, a mask, the speed of sound of a medium.

They are seen at every step and predicted at none. A set is read in two parts: fields that change,
`changing(found)`, and those that do not, `constant_fields`. What is scaled, trained, compared and
drawn are the former alone; a network is given the latter with its conditions, as `Conditioning`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import unknown
from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.trees import PyTree

from .emulator import Conditioning, FieldNetwork
from .fieldset import FieldSet, check_trainable


def others(channels: int, constant: Iterable[int]) -> tuple[int, ...]:
    """The channels that are not `constant`, in their order."""
    return tuple(sorted({*range(channels)} - {*constant}))


def take_channels(fields: FieldSet, channels: Sequence[int]) -> FieldSet:
    """Some of the channels, by their numbers, as a set."""
    kept = list(channels)

    def read(rows: Any, frames: Any) -> np.ndarray:
        return fields.read(rows, frames)[:, :, kept]

    return fields._replace(
        shape=(*fields.shape[:2], len(kept), *fields.shape[3:]),
        read=read,
        channels=tuple(fields.channels[i] for i in kept if fields.channels),
        constant=tuple(i for i, channel in enumerate(kept) if channel in fields.constant),
    )


def named(fields: FieldSet, names: Sequence[str]) -> FieldSet:
    """Some of the channels, by their names; `ConfigError` of one that is not there.

    Its equation is no longer known where others are left out.
    """
    for name in names:
        if name not in fields.channels:
            raise unknown("channels", name, fields.channels)
    found = take_channels(fields, [fields.channels.index(name) for name in names])
    return found if {*names} == {*fields.channels} else found._replace(equation="")


def changing(fields: FieldSet) -> FieldSet:
    """The set without its constant channels."""
    return (
        take_channels(fields, others(fields.shape[2], fields.constant))
        if fields.constant
        else fields
    )


def constant_fields(fields: FieldSet, channels: Sequence[int]) -> np.ndarray:
    """Some channels of the first frame of every trajectory, `[N, S, *space]`."""
    return fields.read(slice(None), slice(0, 1))[:, 0, list(channels)]


def never_changing(u: np.ndarray, parts: Iterable[slice]) -> tuple[int, ...]:
    """Channels of `[N, T, C, *space]` that are the same in every frame of every trajectory."""
    left = np.ones(u.shape[2], bool)
    over = (0, 1, *range(3, u.ndim))
    for part in parts:
        left &= (u[part, 1:] == u[part, :1]).all(over)
        if not left.any():
            break
    return tuple(np.flatnonzero(left).tolist())


def check_constant(
    path: str | Path, values: np.ndarray, channels: Iterable[int], names: Sequence[str] = ()
) -> None:
    """`DataError` where one of these channels of `[N, T, C, *space]` changes over the frames."""
    for channel in channels:
        apart = values[:, 1:, channel] != values[:, :1, channel]
        if apart.any():
            row, frame = (int(n) for n in np.argwhere(apart)[0][:2])
            name = names[channel] if names else f"channel {channel}"
            where = f"a change in trajectory {row}, frame {frame + 1}"
            raise DataError(path, name, where, "the same in every frame: it is held constant")


@functools.lru_cache(maxsize=32)
def with_constant(net: FieldNetwork) -> FieldNetwork:
    """A network on `C + S` channels as one on `C` that sees the `S` that are constant.

    Its conditions are `Conditioning`. The constant channels stand behind the others in every frame
    that it sees, zeros in its second input, and its output for them is dropped.
    """

    def apply(
        params: PyTree, field: jax.Array, noised: jax.Array, index: Any, given: Conditioning
    ) -> jax.Array:
        frames = field.reshape(net.history, *noised.shape)
        beside = jnp.broadcast_to(given.constant, (net.history, *given.constant.shape))
        seen = jnp.concatenate([frames, beside], 1).reshape(-1, *noised.shape[1:])
        second = jnp.concatenate([noised, jnp.zeros_like(given.constant)])
        whole = net.apply(params, seen, second, index, given.conditions)
        frames = whole.reshape(-1, *second.shape)[:, : len(noised)]
        return frames.reshape(-1, *noised.shape[1:])

    return net._replace(apply=apply)


def check_changing(fields: FieldSet) -> None:
    """`DataError` unless fields can be trained on, and some of their channels change."""
    check_trainable(fields)
    if len(fields.constant) == fields.shape[2]:
        name = fields.channels[0] if fields.channels else "u"
        raise DataError(fields.path, name, "no change from step to step", "fields that change")
