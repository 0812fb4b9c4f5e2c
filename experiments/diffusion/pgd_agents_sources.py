"""What `pgd_agents` trains on: a dataset, denoisers fitted to it and what is drawn from them.

Sources: `real`; `synther`, single transitions out of a residual MLP; `unguided`, windows out of a
U-Net; `guided`, the same U-Net pulled towards the current policy and drawn anew at every refresh.
The first three are fixed sets; both synthetic ones have equally many rows.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxrl_rollouts import devices
from jaxrl_rollouts.diffusion import (
    Denoiser,
    DenoiserTrainingConfig,
    check_finite,
    make_denoiser,
    make_temporal_unet,
    sample,
    train_denoiser,
)
from jaxrl_rollouts.offline.behaviours.made import load_dataset
from jaxrl_rollouts.offline.data import Transitions, take_rows, to_device
from jaxrl_rollouts.offline.environments import Environment
from jaxrl_rollouts.offline.study.model_based import Setting, environment_of, slug
from jaxrl_rollouts.offline.synthetic.synther import fit_layout, generate, make_synther
from jaxrl_rollouts.offline.synthetic.windows import WindowLayout, cut_windows, fit_window_layout
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.trees import PyTree

from .pgd_agents_config import Config


class Sources(NamedTuple):
    """One dataset and what was made of it.

    Attributes:
        setting: dataset and environment.
        real: its rows, on the device.
        synther, unguided: synthetic rows, on the device; None where they are not asked for.
        denoiser, params, layout: of windows; None without `unguided` and `guided`.
    """

    setting: Setting
    real: Transitions
    synther: Transitions | None
    unguided: Transitions | None
    denoiser: Denoiser | None
    params: PyTree
    layout: WindowLayout | None

    @property
    def env(self) -> Environment:
        return self.setting.env

    def fixed(self, source: str) -> Transitions:
        """The rows of a source that is drawn once."""
        rows = {"real": self.real, "synther": self.synther, "unguided": self.unguided}[source]
        assert rows is not None
        return rows


def make_sources(name: str, config: Config, context: RunContext | None) -> Sources:
    """Load a dataset, fit its denoisers and draw the fixed synthetic sets."""
    dataset = load_dataset(name, config.seed)
    rows, key = dataset.transitions, jax.random.key(config.seed)
    unet_key, pool_key, mlp_key, rows_key = jax.random.split(key, 4)
    sources = Sources(
        Setting(dataset, environment_of(dataset)), to_device(rows), None, None, None, None, None
    )
    count = config.pool * (config.length - 1)
    if {"unguided", "guided"} & set(config.sources):
        windows = cut_windows(rows, config.length, config.stride, source=name)
        layout = fit_window_layout(windows)
        denoiser = make_denoiser(make_temporal_unet(config.unet, config.length, layout.channels))
        params = fit_denoiser(
            denoiser, config.unet_training, layout.pack(windows), unet_key,
            f"{slug(name)}-unet", context,
        )  # fmt: skip
        sources = sources._replace(denoiser=denoiser, params=params, layout=layout)
    if "unguided" in config.sources:
        drawn = draw_windows(sources, config, pool_key)
        assert sources.layout is not None
        made, valid = sources.layout.unpack(drawn)
        kept = to_device(take_rows(made, np.flatnonzero(valid)))
        count = len(kept.rewards)
        sources = sources._replace(unguided=kept)
    if "synther" in config.sources:
        row_layout = fit_layout(rows)
        synther = make_synther(config.synther, row_layout.features)
        params = fit_denoiser(
            synther.denoiser, config.synther.training, row_layout.pack(rows), mlp_key,
            f"{slug(name)}-synther", context,
        )  # fmt: skip
        made = generate(
            synther.denoiser, params, rows_key, row_layout, count, config=config.synther.sampler
        )
        sources = sources._replace(synther=made)
    return sources


def fit_denoiser(
    denoiser: Denoiser, config: DenoiserTrainingConfig, rows: jax.Array, key: jax.Array,
    stage: str, context: RunContext | None,
) -> PyTree:  # fmt: skip
    """The averaged weights of one denoiser trained on `[N, ...]` rows."""
    done = train_denoiser(denoiser, config, rows, key[None], stage=stage, context=context)
    return jax.tree.map(lambda x: x[0], done.state.average)


def draw_windows(sources: Sources, config: Config, key: jax.Array) -> jax.Array:
    """`[pool, L, C]` unguided standardised windows, a refresh's number at a time on every core.

    Raises:
        DivergenceError: a window is not finite.
    """
    denoiser, layout = sources.denoiser, sources.layout
    assert denoiser is not None and layout is not None
    cores = len(jax.devices())
    each = min(config.windows, -(-config.pool // cores))
    shape = (each, layout.length, layout.channels)
    keys = jax.random.split(key, (cores, -(-config.pool // (cores * each))))

    def part(keys: jax.Array, params: PyTree) -> jax.Array:
        def once(key: jax.Array) -> jax.Array:
            return sample(
                denoiser.denoise, params, key, shape, config=config.sampler, edm=denoiser.config
            )

        return jax.lax.map(once, keys).reshape(-1, *shape[1:])

    drawn = devices.map_seeds(part, keys, sources.params)
    return check_finite(drawn.reshape(-1, *shape[1:])[: config.pool], "windows")
