"""Flows: one network for velocities and for whole jumps along the path from noise to data.

On the linear path `x_t = (1 - t) x + t e` a flow's `u(x_t, t, s)` is the average velocity from time
t down to s, so `x_s = x_t - (t - s) u`; at s = t it is the velocity itself, and `x_t - t u` is the
clean row. `sigma = t / (1 - t)` is EDM's noise, and with EDM's scales of a raw network F

    u = (t - d^2 (1 - t)) / c^2 x_t - d F(x_t / c, c_noise, 1 - s / t) / c,   c^2 = t^2 + d^2 (1 - t)^2

(d the data's deviation), which at s = t is the velocity of EDM's denoiser of the same F, exactly.
So a trained denoiser is a velocity model, a teacher, and a student's first weights.
"""  # noqa: E501

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp

from ..configs import check, fraction, number, positive
from ..errors import ConfigError
from ..networks import Network
from ..trees import PyTree
from .edm import Denoiser, EdmConfig, per_row
from .flow_losses import LOSS_OF, Batch

TINY = 1e-6  # the least time that is divided by


@dataclass(frozen=True)
class FlowConfig:
    """Settings of a flow's loss; see `flow_losses` for the equations.

    Attributes:
        loss: `velocity` (flow matching, Lipman et al. 2023), `mean` (MeanFlow, Geng et al. 2025,
            arXiv:2505.13447) or `consistency` (multistep consistency, Heek et al. 2024,
            arXiv:2403.06807).
        edm: deviation of the data, and the least and greatest noise that the embedding resolves.
        times: `uniform`, or `logit_normal`: the sigmoid of a normal.
        time_mean, time_std: parameters of that normal.
        equal: share of `mean`'s rows whose interval is empty: plain flow matching.
        power: p of `mean`'s weight `1 / (error + 0.01)^p`. The paper's 1 minimises a logarithm
            of the error: modes come out sharp with the wrong masses. 0 is the error itself.
        segments: number of segments of `consistency`: a jump ends where its segment does, and
            sampling takes as many.
        steps: steps of the teacher per segment, two calls each.
        huber: c of `sqrt(error^2 + c^2) - c` (`consistency`), in deviations per entry.
    """

    loss: Literal["velocity", "mean", "consistency"] = "velocity"
    edm: EdmConfig = field(default_factory=EdmConfig)
    times: Literal["uniform", "logit_normal"] = "logit_normal"
    time_mean: float = -0.4
    time_std: float = number(1.0, above=0)
    equal: float = fraction(0.5)
    power: float = number(0.0, least=0)
    segments: int = positive(4)
    steps: int = positive(16)
    huber: float = number(0.05, above=0)


class Flow(NamedTuple):
    """A flow as pure functions of standardised rows; see `make_flow`.

    Attributes:
        init: `key -> params`.
        average: `(params, x [B, ...], t, s) -> u [B, ...]`, the average velocity from t to s;
            times are `[]` or `[B]`, `0 <= s <= t <= 1`.
        loss: `(params, key, rows [B, ...], weights=None, teacher=None) -> scalar`; weights as a
            `Denoiser`'s, `teacher` are the parameters of the teacher, which are data.
        config: settings of the student.
    """

    init: Callable[[jax.Array], PyTree]
    average: Callable[..., jax.Array]
    loss: Callable[..., jax.Array]
    config: FlowConfig


def noise_of(t: jax.Array, edm: EdmConfig) -> jax.Array:
    """`sigma = t / (1 - t)`, kept within the noises of `edm`."""
    least, most = (sigma / (1.0 + sigma) for sigma in (edm.sigma_min, edm.sigma_max))
    t = jnp.clip(jnp.asarray(t, jnp.float32), least, most)
    return t / (1.0 - t)


def time_of(sigma: Any) -> Any:
    """`t = sigma / (1 + sigma)`."""
    return sigma / (1.0 + sigma)


@functools.lru_cache(maxsize=32)
def make_flow(
    network: Network, config: FlowConfig | None = None, teacher: Flow | None = None
) -> Flow:
    """Wrap a raw network `F(params, x [B, ...], c_noise [B], share [B])`, made with `interval=True`.

    Equal arguments give the same functions. The teacher's functions are fixed here; its parameters
    are an argument of the loss, so a new teacher needs no recompilation.

    Args:
        network: `make_residual_mlp(..., interval=True)` or `make_temporal_unet(..., interval=True)`.
        config: settings of the student.
        teacher: its velocities replace the data's; `flow_of_denoiser` makes one of a
            denoiser. Of any loss but `velocity`.

    Raises:
        ConfigError: a setting is out of range, or the loss has no use for a teacher.
    """  # noqa: E501
    config = config or FlowConfig()
    check(config)
    if teacher is not None and config.loss == "velocity":
        raise ConfigError("loss", "velocity", "another loss with a teacher, which has velocities")
    spread = config.edm.sigma_data

    def average(params: PyTree, x: jax.Array, t: Any, s: Any) -> jax.Array:
        t, s = (jnp.broadcast_to(jnp.asarray(v, jnp.float32), x.shape[:1]) for v in (t, s))
        share = (t - s) / jnp.maximum(t, TINY)
        wide = per_row(t, x)
        size = jnp.sqrt(jnp.square(wide) + jnp.square(spread * (1.0 - wide)))
        c_noise = 0.25 * jnp.log(noise_of(t, config.edm))
        output = network.apply(params, x / size, c_noise, share).astype(jnp.float32)
        chex.assert_equal_shape([output, x])
        skip = (wide - spread**2 * (1.0 - wide)) / jnp.square(size)
        return skip * x - spread * output / size

    learn = functools.partial(LOSS_OF[config.loss], config, average, teacher)

    def loss(
        params: PyTree,
        key: jax.Array,
        rows: jax.Array,
        weights: jax.Array | None = None,
        teacher: PyTree = None,
    ) -> jax.Array:
        key, _ = jax.random.split(key)  # as ever, so that published numbers are remade
        return learn(params, key, Batch(rows, weights, teacher))

    return Flow(network.init, average, loss, config)


@functools.lru_cache(maxsize=32)
def flow_of_denoiser(denoiser: Denoiser) -> Flow:
    """A trained EDM denoiser as a velocity model of the same parameters, with nothing to learn.

    `v(x_t, t) = (x_t - D(x_t / (1 - t); t / (1 - t))) / t`; beyond the greatest noise it was
    trained with it is evaluated at that one. It has no jumps: s is unused.
    """
    edm = denoiser.config

    def average(params: PyTree, x: jax.Array, t: Any, s: Any = None) -> jax.Array:
        del s
        sigma = noise_of(t, edm)
        clean = denoiser.denoise(params, x * (1.0 + per_row(sigma, x)), sigma)
        return (x - clean) / jnp.maximum(per_row(t, x), time_of(edm.sigma_min))

    return Flow(denoiser.init, average, denoiser.loss, FlowConfig(edm=edm))


@functools.lru_cache(maxsize=32)
def denoiser_of_flow(flow: Flow) -> Denoiser:
    """The other way: `D(x; sigma) = y - t u(y, t, t)`, `y = (1 - t) x`, for every sampler of EDM.

    It is as good as the flow's velocities; a consistency student has almost none.
    """

    def denoise(params: PyTree, x: jax.Array, sigma: jax.Array) -> jax.Array:
        t = time_of(jnp.asarray(sigma, jnp.float32))
        y = (1.0 - per_row(t, x)) * x
        return y - per_row(t, x) * flow.average(params, y, t, t)

    return Denoiser(flow.init, denoise, flow.loss, flow.config.edm)


def with_weights_of(fresh: PyTree, teacher: PyTree) -> PyTree:
    """`fresh` parameters with the teacher's in every place he has: a student's first ones."""
    if not isinstance(teacher, dict):
        if fresh is None or jnp.shape(fresh) != jnp.shape(teacher):
            found = jnp.shape(teacher), None if fresh is None else jnp.shape(fresh)
            raise ValueError(f"teacher: found an array {found[0]}, its student has {found[1]}")
        return jnp.asarray(teacher)
    if not isinstance(fresh, dict) or set(teacher) - set(fresh):
        missing = sorted(set(teacher) - set(fresh if isinstance(fresh, dict) else ()))
        raise ValueError(f"teacher: found {missing}, which its student's network lacks")
    return {
        name: with_weights_of(leaf, teacher[name]) if name in teacher else leaf
        for name, leaf in fresh.items()
    }


class DistillationBatch(NamedTuple):
    """Data of a distillation: rows `[N, ...]`, and the teacher's frozen parameters.

    Hand `distillation_batch` and `start_from_teacher` to `make_denoiser_training`.
    """

    rows: jax.Array
    teacher: PyTree


def distillation_batch(data: DistillationBatch, rows: jax.Array) -> tuple:
    """`batch_of` for a flow with a teacher: rows, no weights, his parameters."""
    return data.rows[rows], None, data.teacher


def start_from_teacher(fresh: PyTree, data: DistillationBatch) -> PyTree:
    """`start` for a student whose network is his and has an interval."""
    return with_weights_of(fresh, data.teacher)
