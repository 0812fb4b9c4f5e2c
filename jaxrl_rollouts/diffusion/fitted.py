"""A diffusion model of your own rows, in one call.

model = fit(rows, Unet(), steps=5000)          # rows [N, L, C], or [N, F]
drawn = model.sample(64)                         # [64, L, C], in the rows' units
few = model.distil(rows, calls=4)                # a student of it
drawn = few.sample(64)                           # in four calls of the network
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from ..configs import check, renamed
from ..devices import check_devices
from ..draws import as_key
from ..errors import ConfigError, DataError
from ..loop import Trained
from ..networks import Network
from ..outside import to_numbers
from ..record.context import RunContext
from ..trees import PyTree
from .edm import Denoiser, EdmConfig, make_denoiser
from .flow import DistillationBatch, Flow, flow_of_denoiser, make_flow
from .jumps import JumpConfig, draw_samples
from .networks import ResidualMlp, make_residual_mlp
from .sampler import Guidance, SamplerConfig, check_finite
from .training import (
    DenoiserTrainingConfig,
    DistilConfig,
    distil,
    small_distil,
    small_training,
    train_denoiser,
)
from .unet import Unet, make_temporal_unet

SMALL = ResidualMlp(width=256)


class Units(NamedTuple):
    """Mean and deviation of the last axis, `[F]` float64 on the host.

    They are subtracted before anything is rounded to float32. The deviation of a column that never
    varies is 0: it comes back as it was.
    """

    mean: np.ndarray
    std: np.ndarray

    def normalise(self, rows: np.ndarray) -> jax.Array:
        """`[..., F]` rows as the network sees them, float32."""
        std = np.where(self.std == 0, 1.0, self.std)
        return jnp.asarray((np.asarray(rows, np.float64) - self.mean) / std, jnp.float32)

    def denormalise(self, rows: jax.Array, dtype: np.dtype) -> np.ndarray:
        """Undo `normalise`."""
        return (np.asarray(rows, np.float64) * self.std + self.mean).astype(dtype)


def fit_units(rows: np.ndarray) -> Units:
    """Units of `[..., F]` rows, over all axes but the last."""
    flat = rows.reshape(-1, rows.shape[-1]).astype(np.float64)
    first, varies = flat[0], (flat != flat[0]).any(0)
    # about the first row: squares of a large offset would lose the deviations
    shift = (flat - first).mean(0)
    return Units(np.where(varies, first + shift, first), np.where(varies, flat.std(0), 0.0))


class Fitted(NamedTuple):
    """A trained diffusion model, or a student of one.

    Attributes:
        model: its functions, of standardised rows; a student is a `Flow`.
        params: the averaged weights.
        units: units of the last axis.
        shape: shape of one row, `(F,)` or `(L, C)`.
        dtype: data type of the training rows and of the samples.
        trained: history and times.
        network: sizes of its network, which a student's has, too.
        sampling: default settings of the sampler.
    """

    model: Denoiser | Flow
    params: PyTree
    units: Units
    shape: tuple[int, ...]
    dtype: np.dtype
    trained: Trained
    network: Unet | ResidualMlp
    sampling: SamplerConfig | JumpConfig

    def sample(
        self,
        count: int,
        key: jax.Array | int = 0,
        *,
        config: SamplerConfig | JumpConfig | None = None,
        guidance: Guidance | None = None,
        guide_params: PyTree = None,
    ) -> np.ndarray:
        """Draw `count` rows, `[count, F]` or `[count, L, C]`, in the data's units.

        Args:
            count: number of samples.
            key: consumed, or the number to make one of.
            config: steps, order and churn; or a `JumpConfig`, of `euler` or `heun` unless it is a
                student's. None: what suits it, a student's as many jumps as it was trained for.
            guidance, guide_params: those of `guidance`; its target sees standardised rows.

        Raises:
            ConfigError: a setting is out of range, or jumps are set, which only a student has.
            DivergenceError: a row is not finite.
        """
        if count < 1:
            raise ConfigError("count", count, "at least 1")
        rows = draw_samples(
            self.model,
            self.params,
            as_key(key),
            (count, *self.shape),
            config=config or self.sampling,
            guidance=guidance,
            guide_params=guide_params,
        )
        return self.units.denormalise(check_finite(rows), self.dtype)

    def distil(
        self,
        rows: ArrayLike,
        *,
        calls: int = 4,
        steps: int = 10_000,
        batch: int = 128,
        config: DistilConfig | None = None,
        key: jax.Array | int = 0,
        stage: str = "student",
        context: RunContext | None = None,
    ) -> Fitted:
        """Train a student that samples in a few calls what this model samples in many.

        Args:
            rows: `[N, F]` or `[N, L, C]`, in the data's units: the model's own, or others like
                them. The student gets them noised, with its teacher's velocities as targets.
            calls: network calls per sample.
            steps, batch: gradient steps, two calls of the teacher each, and rows of each.
            config: all settings of the student instead, and of its sampler.
            key: consumed, or the number to make one of.
            stage, context: as for `train_loop`.

        Raises:
            DataError: rows of another shape than the model's, or not finite.
            ConfigError: a setting out of range, or this is a student itself.
            DivergenceError: the loss became non-finite.
        """
        if isinstance(self.model, Flow):
            raise ConfigError("model", "a student", "its teacher, whose velocities are learned")
        data = _checked(rows)
        if data.shape[1:] != self.shape:
            expected = ["N", *self.shape]
            raise DataError("rows", "shape", list(data.shape), f"{expected}, the model's")
        config = config or small_distil(calls, steps, batch)
        check(config)
        net = _network(self.network, self.shape, interval=True)
        flow = make_flow(net, config.flow, flow_of_denoiser(self.model))
        lesson = DistillationBatch(
            self.units.normalise(data), jax.tree.map(lambda x: x[None], self.params)
        )
        first = as_key(key)
        run = {"stage": stage, "context": context}
        trained = distil(flow, config.training, lesson, first[None], **run)
        params = jax.tree.map(lambda leaf: leaf[0], trained.state.average)
        return self._replace(model=flow, params=params, trained=trained, sampling=config.jumps)


def _network(config: Unet | ResidualMlp, shape: tuple[int, ...], **given: bool) -> Network:
    if isinstance(config, Unet):
        return make_temporal_unet(config, *shape, **given)
    return make_residual_mlp(config, *shape, **given)


def _checked(rows: ArrayLike) -> np.ndarray:
    data = to_numbers("rows", "rows", rows)
    data = data if data.dtype == np.float64 else data.astype(np.float32)
    if data.ndim not in (2, 3) or not data.size:
        raise DataError("rows", "shape", list(data.shape), "[N, F] or [N, L, C], not empty")
    if not np.isfinite(data).all():
        bad = np.argwhere(~np.isfinite(data))[0].tolist()
        raise DataError("rows", f"entry {bad}", data[tuple(bad)], "finite numbers")
    return data


@renamed(updates="steps")
def fit(
    rows: ArrayLike,
    network: Unet | ResidualMlp | None = None,
    *,
    steps: int = 20_000,
    batch: int = 128,
    training: DenoiserTrainingConfig | None = None,
    edm: EdmConfig | None = None,
    key: jax.Array | int = 0,
    stage: str = "denoiser",
    context: RunContext | None = None,
) -> Fitted:
    """Train a diffusion model of rows `[N, F]`, or of sequences `[N, L, C]`.

    Args:
        rows: the data, in any units; every entry of the last axis is standardised.
        network: a `ResidualMlp` of rows, a `Unet` of sequences; None for a small one.
        steps, batch: gradient steps, and rows of each.
        training: all settings of the optimisation instead.
        edm: noise levels.
        key: consumed, or the number to make one of.
        stage, context: as for `train_loop`.

    Raises:
        DataError: rows of another shape, or not finite.
        ConfigError: a network of the other kind, or a setting out of range.
        DivergenceError: the loss became non-finite.
    """
    check_devices()
    data = _checked(rows)
    network = network or (SMALL if data.ndim == 2 else Unet())
    if isinstance(network, Unet) != (data.ndim == 3):
        expected = "a ResidualMlp for [N, F]" if data.ndim == 2 else "a Unet for [N, L, C]"
        raise ConfigError("network", type(network).__name__, expected)
    denoiser = make_denoiser(_network(network, data.shape[1:]), edm)
    units = fit_units(data)
    first = as_key(key)
    trained = train_denoiser(
        denoiser,
        training or small_training(steps, batch),
        units.normalise(data),
        first[None],
        stage=stage,
        context=context,
    )
    params = jax.tree.map(lambda leaf: leaf[0], trained.state.average)
    about = units, data.shape[1:], data.dtype, trained, network
    return Fitted(denoiser, params, *about, SamplerConfig())
