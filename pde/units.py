"""Fields and conditions as networks see them: standardised, and on a scale from 0 to 10."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import DataError

from .constant import constant_fields
from .emulator import Conditioning, Scale
from .fieldset import SPAN, Fields, FieldSet, Scaling, condition_values, to_units
from .streaming import deviation, trajectories
from .trained import TrainedEmulator
from .training import Training


def standardised(
    fields: FieldSet,
    u: np.ndarray,
    units: tuple[Scaling, ...],
    scalings: Mapping[str, Scaling],
    constant: Mapping[int, Scaling] | None = None,
) -> Fields:
    """Fields `[N, T, C, *X]` and conditions as a network sees them.

    Args:
        fields: fields with these conditions and constant channels.
        u: its fields that change.
        units: result of `channel_units`.
        scalings: result of `condition_scalings`.
        constant: result of `constant_units`.
    """
    seen = to_units(units, u, u.ndim - 3)
    return Fields(
        jnp.asarray(seen), jax.tree.map(jnp.asarray, conditions_of(fields, scalings, constant))
    )


def conditions_of(
    fields: FieldSet,
    scalings: Mapping[str, Scaling],
    constant: Mapping[int, Scaling] | None = None,
) -> Any:
    """Conditions of every trajectory as a network sees them, `[N, P]` float32.

    `Conditioning` with the constant channels `[N, S, *X]` where there are some.
    """
    columns = [np.zeros((fields.shape[0], 0))]
    columns += [scale(condition_values(fields, name)) for name, scale in scalings.items()]
    conditions: Any = np.concatenate(columns, 1).astype(np.float32)
    if not constant:
        return conditions
    still = constant_fields(fields, tuple(constant))
    seen: Any = to_units(tuple(constant.values()), still, still.ndim - 2)
    return Conditioning(conditions, seen)


def channel_units(fields: FieldSet, u: np.ndarray) -> tuple[Scaling, ...]:
    """Mean and one over the standard deviation of every channel of `[N, T, C, *X]`."""
    over = (0, 1, *range(3, u.ndim))
    mean, spread = deviation((u[part] for part in trajectories(u.shape)), over)
    if (spread == 0).any():
        name = fields.channels[int(spread.argmin())] if fields.channels else "u"
        raise DataError(fields.path, name, "a constant", "a channel that changes")
    return tuple(Scaling(float(m), float(1 / s)) for m, s in zip(mean, spread, strict=True))


def constant_units(fields: FieldSet) -> dict[int, Scaling]:
    """As `channel_units`, of the constant channels, by number; the factor is 1 where one is the
    same everywhere."""
    if not fields.constant:
        return {}
    still = constant_fields(fields, fields.constant)
    mean, spread = deviation([still], (0, *range(2, still.ndim)))
    factor = 1 / np.where(spread == 0, 1.0, spread)
    units = (Scaling(float(m), float(f)) for m, f in zip(mean, factor, strict=True))
    return dict(zip(fields.constant, units, strict=True))


def step_scale(fields: FieldSet, u: np.ndarray, units: tuple[Scaling, ...], stride: int) -> Scale:
    """Standard deviation of a step's change of standardised `[N, T, C, *X]`, three digits: a number
    for a single channel, else one for each.
    """
    if u.shape[1] <= stride:
        raise DataError(fields.path, "frames", u.shape[1], f"at least {stride + 1}, a step")
    parts = (to_units(units, u[part], u.ndim - 3) for part in trajectories(u.shape))
    changes = (part[:, stride:] - part[:, :-stride] for part in parts)
    if u.shape[2] == 1:
        spread = [deviation(changes, tuple(range(u.ndim)))[1]]
    else:
        spread = deviation(changes, (0, 1, *range(3, u.ndim)))[1]
    scales = tuple(float(f"{one:.3g}") for one in spread)
    if not min(scales) > 0:
        name = fields.channels[scales.index(min(scales))] if fields.channels else "u"
        raise DataError(fields.path, name, "no change from step to step", "fields that change")
    return scales[0] if len(scales) == 1 else scales


def condition_scalings(fields: FieldSet, names: tuple[str, ...] | None) -> dict[str, Scaling]:
    """How networks see conditions, by name: from 0 to 10 over the trajectories."""
    if names is None:
        known = {"dt": fields.dt, "dx": fields.extent, **fields.parameters}
        names = tuple(n for n, v in known.items() if np.isfinite(v).all() and np.ptp(v, 0).any())
    scalings = {}
    for name in names:
        values = condition_values(fields, name)
        span = float(np.ptp(values))
        scalings[name] = Scaling(float(values.min()), SPAN / span if span else 1.0)
    return scalings


def learned_from(own: TrainedEmulator, objective: Any, training: Training) -> dict[str, Any]:
    """What decides what an emulator learns, by name (`train_loop`): first what was chosen, then
    what was measured.
    """
    about = dict(own.emulator.about)
    scale = about.pop("scale", own.scale)  # measured: what was chosen is compared first
    return {
        "boundaries": own.boundaries,
        "conditions": {name: rounded(scale) for name, scale in own.conditions.items()},
        "constant": {number: rounded(scale) for number, scale in own.constant.items()},
        **about,
        "objective": objective,
        "training": training,
        "history": own.history,
        "scale": scale,
        "units": [rounded(unit) for unit in own.units],
    }


def rounded(scaling: Scaling) -> list[float]:
    """Shift and factor to a millionth of the spread: the last bits of what was measured are a
    machine's own, and a run may be resumed on another."""
    digits = 6 + math.floor(math.log10(scaling.factor))
    return [round(scaling.shift, digits), float(f"{scaling.factor:.6g}")]
