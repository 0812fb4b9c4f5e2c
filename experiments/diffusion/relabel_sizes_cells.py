"""What `relabel_sizes` trains: arms that differ in one thing from the setting of a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.record.context import RunContext

from .synther_small_data_cells import percent_name, train_cell
from .synther_small_data_config import Config as SmallData
from .synther_small_data_rows import Share, draw_samples, measure_quality, own_rows, tell_anew

AXES = ("agent", "kind", "denoiser", "network", "real")
Grids = Mapping[float, Grid]  # cells by AXES, by share of the data


class Arm(NamedTuple):
    """What an agent learns from.

    Attributes:
        kind: `rows`, `samples`, or who tells these anew.
        denoiser: features of the diffusion model that drew them.
        network: width of the layers of what tells them anew; 0 for nobody.
        real: share of real rows in a batch.
    """

    kind: str
    denoiser: int = 0
    network: int = 0
    real: float = 1.0

    def __str__(self) -> str:
        sizes = {"denoiser": self.denoiser, "network": self.network}
        told = [f"{name} {size}" for name, size in sizes.items() if size]
        real = [f"{100 * self.real:g} % real"] if self.denoiser else []
        return ", ".join([self.kind, *told, *real])


@dataclass(frozen=True)
class Config:
    """What is varied, one thing at a time, around a study of small data.

    Attributes:
        study: data, models and budgets, as in `synther_small_data`; of `told` there is one, by
            networks, and its `real_share` is where sizes are compared.
        denoisers: features of the diffusion model.
        networks: width of the layers of the networks that tell what follows; their number stays.
        real_shares: of real rows in a batch of samples.
    """

    study: SmallData = field(default_factory=lambda: SmallData(told=("model",)))
    denoisers: tuple[int, ...] = (32, 128, 256)
    networks: tuple[int, ...] = (32, 200, 400)
    real_shares: tuple[float, ...] = (0.0, 0.5, 0.9)

    def validate(self) -> None:
        told = self.study.told
        if len(told) != 1 or told[0] == "oracle":
            raise ConfigError("study.told", told, "one kind, told by networks")
        names = dict(zip(self.varied, ("denoisers", "networks", "real_shares"), strict=True))
        for axis, values in self.varied.items():
            middle = getattr(self.centre, axis)
            ascending = list(values) == sorted(set(values))
            if not ascending or middle not in values or values[0] < 0:
                expected = f"ascending, none negative, the study's own ({middle:g}) among them"
                raise ConfigError(names[axis], values, expected)
        if self.real_shares[-1] >= 1:
            raise ConfigError("real_shares", self.real_shares, "below 1: that is the rows alone")

    @property
    def teller(self) -> str:
        """The kind of samples that are told anew."""
        return self.study.told[0]

    @property
    def centre(self) -> Arm:
        """The study's own setting, told anew."""
        study = self.study
        width = study.networks.hidden[0]
        return Arm(self.teller, study.synther.network.width, width, study.real_share)

    @property
    def varied(self) -> dict[str, tuple]:
        """What an arm's sizes and share are varied over."""
        return {"denoiser": self.denoisers, "network": self.networks, "real": self.real_shares}

    def along(self, axis: str, kind: str) -> list[Arm]:
        """The arms of a kind that differ along one axis, in its order."""
        arms = [self.centre._replace(**{axis: value}) for value in self.varied[axis]]
        return arms if kind == self.teller else [a._replace(kind=kind, network=0) for a in arms]

    def arms(self) -> tuple[Arm, ...]:
        """All of them, the rows first, none twice."""
        kinds, axes = ("samples", self.teller), ("denoiser", "network", "real")
        found = [arm for kind in kinds for axis in axes for arm in self.along(axis, kind)]
        return tuple(dict.fromkeys([Arm("rows"), *found]))

    def at(self, arm: Arm) -> SmallData:
        """The study with the sizes and the share of an arm."""
        study = self.study
        if arm.denoiser:
            network = replace(study.synther.network, width=arm.denoiser)
            study = replace(study, synther=replace(study.synther, network=network))
        if arm.network:
            hidden = (arm.network,) * len(study.networks.hidden)
            study = replace(study, networks=replace(study.networks, hidden=hidden))
        return replace(study, real_share=arm.real)


class Made(NamedTuple):
    """Rows of an arm, every seed's, CPU seconds of a seed, and how good they are."""

    rows: list[Transitions]
    seconds: float
    quality: dict[str, np.ndarray]


def made_rows(
    part: Share, config: Config, look_key: jax.Array, context: RunContext | None
) -> Iterator[tuple[Arm, Made]]:
    """What every arm's real rows are mixed with, by the arm with its `real` left at the study's.

    Every denoiser is fitted once and every network once; all begin from the same keys.
    """
    centre = config.centre
    sizes = [arm for arm in config.arms() if arm.denoiser and arm.real == centre.real]
    samples: dict[int, tuple[list[Transitions], float]] = {}
    for arm in sizes:
        study, width = config.at(arm), arm.denoiser
        if width not in samples:
            named = part._replace(name=f"{part.name}-width-{width}")
            samples[width] = draw_samples(named, study, context)
        made, seconds = samples[width]
        if arm.network:
            # A network of a size is the same whoever drew the samples: its stage is found again.
            named = part._replace(name=f"{part.name}-network-{arm.network}")
            told = tell_anew(named, made, study, context)
            made, seconds = told.rows[arm.kind], seconds + told.seconds[arm.kind]
        quality = measure_quality(part.rows, {arm.kind: made}, part.env, look_key, study)
        yield arm, Made(made, seconds, quality[arm.kind])


def measure_sizes(
    share: float, setting: Setting, config: Config, key: jax.Array, context: RunContext | None
) -> Grid:
    """What agents learn from a share of the rows and from what every arm makes of them.

    Returns:
        Cells by `AXES`: `return`; `learning` and `models`, CPU seconds of a seed; of what was made
        the numbers of `quality_of`, `[seeds]`.
    """
    rows_key, draw_key, look_key = jax.random.split(key, 3)
    rows = own_rows(setting.dataset.with_successors, share, rows_key, config.study.seeds)
    part = Share(rows, share, setting.env, draw_key, percent_name(share))
    made = dict(made_rows(part, config, look_key, context))

    def train(agent: str, *values: Any, stage: str) -> Cell:
        arm = Arm(*values)
        source = made.get(arm._replace(real=config.centre.real))
        data = None if source is None else source.rows
        cell = train_cell(agent, rows, data, setting, config.at(arm), stage, context)
        if source is None:
            return cell
        spent = {"models": np.full(config.study.seeds, source.seconds)}
        return replace(cell, extra={**cell.extra, **source.quality, **spent})

    points = [(agent, *arm) for agent in config.study.agents for arm in config.arms()]
    run: dict[str, Any] = {"seeds": config.study.seeds, "stage": part.name}
    return run_grid(AXES, train, context, points=points, clear=False, **run)
