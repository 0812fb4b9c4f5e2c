"""Fit an ensemble of Gaussian regressors: bootstrap, holdout, best snapshots, elites.

An iteration of the training loop is one epoch. Each member sees its own bootstrap sample in its
own order; after each epoch every member that improved on the holdout by enough is remembered;
fitting stops once no member has improved for `patience` epochs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from .configs import check, number, positive, step_size, unknown
from .descent import descend
from .ensemble import Ensemble, ensemble, select_members
from .errors import ConfigError
from .gaussian import gaussian_nll, soft_clamp
from .networks import MLP, Network, from_linen, normal_fan_in, uniform_fan_in
from .trees import PyTree

ACTIVATIONS: Mapping[str, Callable] = {
    "swish": nn.swish,
    "relu": nn.relu,
    "leaky_relu": nn.leaky_relu,
    "gelu": nn.gelu,
}
INITIALISERS: Mapping[str, Callable] = {
    "truncated_normal": normal_fan_in(0.5),
    "uniform": uniform_fan_in(),
}


@dataclass(frozen=True)
class EnsembleConfig:
    """A Gaussian ensemble and how it is fitted. Defaults: MBPO/MOPO's (PETS architecture).

    Attributes:
        members: networks.
        elites: of them, the best on the holdout, which are used.
        hidden: widths of the layers of a member.
        activation: swish, relu, leaky_relu or gelu.
        layer_norm: layer normalisation before each activation.
        initialiser: of the weights: `truncated_normal`, std `1 / (2 sqrt(fan_in))` (PETS), or
            `uniform`, `+-1 / sqrt(fan_in)` (torch's, NEUBAY).
        biases: start at `zero`, or at `uniform`, `+-1 / sqrt(fan_in)` (torch's).
        variance: learned for every `row` with its mean, or one for each `output`. A likelihood
            counts a row the less the wider its normal is: right where rows are noisy; where some
            are merely hard (contacts of a simulator) it gives up on those, and means fitted with
            one variance, by least squares, are truer.
        beta: rows count by their variance to this power, which is not differentiated (beta-NLL,
            Seitzer et al. 2022, arXiv 2203.09168): 0 is the likelihood; 1 fits means by least
            squares and still learns a variance for every row; 0.5 is theirs.
        learned_bounds: learn where the log-variance is clamped, pulled together with weight
            `bound_weight`; else `log_var_low` and `log_var_high` stay, as they do where there is
            one variance for each output.
        log_var_low, log_var_high: the log-variance is clamped between them.
        bound_weight: of the loss that pulls learned bounds together, beside twice the
            log-likelihood.
        input_clip: inputs (standardised, for a world model) are cut at plus and minus this, so
            that nothing far outside the data is asked for what no row has taught (10 in RAVL's
            code). None leaves them.
        bootstrap: give each member rows drawn with replacement; else all see the same.
        learning_rate: of Adam.
        rate_drop: what the rate is multiplied with, once, when `patience` runs out before
            `least_epochs`; patience then starts anew (0.3 in RAVL's code). None keeps the rate.
        cosine: the rate falls to 0 along a cosine over `max_epochs`, epoch by epoch.
        weight_decay: one for all layers, or one each.
        decay: is the decay part of the gradient that Adam scales (`coupled`: PETS, MOPO, RAVL,
            MOBILE), or a step of its own (`decoupled`: AdamW, NEUBAY)?
        batch_size: rows in a gradient step.
        max_epochs: passes over the rows, at most.
        least_epochs: passes before patience may end the fit (350 in RAVL's code).
        patience: epochs without an improvement of any member after which the fit ends.
        judge: what a snapshot is judged by on the holdout: squared error of its means (`mse`),
            or its likelihood (`nll`).
        improvement: how much a member has to improve on its snapshot: a share of its error, or
            nats of its likelihood.
        holdout_share: of the rows that members are judged on.
        holdout_rows: of those, at most.
    """

    members: int = positive(7)
    elites: int = positive(5)
    hidden: tuple[int, ...] = positive((200, 200, 200, 200))
    activation: str = "swish"
    layer_norm: bool = False
    initialiser: str = "truncated_normal"
    biases: Literal["zero", "uniform"] = "zero"
    variance: Literal["row", "output"] = "row"
    beta: float = number(0.0, least=0, most=1)
    learned_bounds: bool = True
    log_var_low: float = -10.0
    log_var_high: float = 0.5
    bound_weight: float = number(0.01, least=0)
    input_clip: float | None = number(None, above=0)
    bootstrap: bool = True
    learning_rate: float = step_size(1e-3)
    rate_drop: float | None = number(None, above=0, most=1)
    cosine: bool = False
    weight_decay: tuple[float, ...] = number((2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4), least=0)
    decay: Literal["coupled", "decoupled"] = "coupled"
    batch_size: int = positive(256)
    max_epochs: int = positive(100)
    least_epochs: int = number(0, least=0)
    patience: int = positive(5)
    judge: Literal["mse", "nll"] = "mse"
    improvement: float = number(0.01, least=0)
    holdout_share: float = number(0.2, above=0, below=1)
    holdout_rows: int = positive(1000)

    def validate(self) -> None:
        if self.elites > self.members:
            raise ConfigError("elites", self.elites, f"between 1 and the {self.members} members")
        if self.activation not in ACTIVATIONS:
            raise unknown("activation", self.activation, ACTIVATIONS)
        if self.initialiser not in INITIALISERS:
            raise unknown("initialiser", self.initialiser, INITIALISERS)
        if len(self.weight_decay) not in (1, len(self.hidden) + 1):
            raise ConfigError(
                "weight_decay", self.weight_decay, f"1 or {len(self.hidden) + 1} values"
            )
        if self.cosine and self.rate_drop is not None:
            expected = "one way of lowering the rate: without rate_drop"
            raise ConfigError("cosine", self.cosine, expected)
        if self.log_var_low >= self.log_var_high:
            raise ConfigError("log_var_low", self.log_var_low, f"below {self.log_var_high}")


class FitData(NamedTuple):
    """Rows the members learn from and rows they are judged on; `[n, I]` and `[n, O]`."""

    inputs: jax.Array
    targets: jax.Array
    holdout_inputs: jax.Array
    holdout_targets: jax.Array


class FitState(NamedTuple):
    """State of the fit of one ensemble. `best` and `best_loss` are the snapshots to use."""

    params: PyTree
    opt_state: Any
    best: PyTree
    best_loss: jax.Array  # [N] holdout error of the snapshots, as judged
    stale: jax.Array  # int32: epochs since any member improved
    epoch: jax.Array  # int32: passes over the rows so far
    key: jax.Array


class Fitter(NamedTuple):
    """Functions for one architecture.

    Attributes:
        ensemble: its `apply_*` return `(mean, log_var)`.
        init: `(key, data=None) -> FitState`.
        update: one epoch, `(FitState, FitData) -> (FitState, metrics)`.
        finished: tells the training loop to stop early.
    """

    ensemble: Ensemble
    init: Callable[..., FitState]
    update: Callable[[FitState, FitData], tuple[FitState, dict[str, jax.Array]]]
    finished: Callable[[Mapping[str, np.ndarray]], bool]


class _GaussianMLP(nn.Module):
    config: EnsembleConfig
    outputs: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        c = self.config
        if c.input_clip is not None:
            x = jnp.clip(x, -c.input_clip, c.input_clip)
        own = c.variance == "row"
        mlp = MLP(
            c.hidden,
            (self.outputs,) * (2 if own else 1),
            ACTIVATIONS[c.activation],
            c.layer_norm,
            kernel_init=INITIALISERS[c.initialiser],
            bias_init=None if c.biases == "uniform" else jax.nn.initializers.zeros,
        )
        low, high = c.log_var_low, c.log_var_high
        if not own:
            mean = mlp(x)
            # Adam moves every number alike; at the weights' pace this one would lag behind.
            tenth = self.param("tenth_log_var", jax.nn.initializers.zeros, (self.outputs,))
            return mean, jnp.broadcast_to(jnp.maximum(10.0 * tenth, low), mean.shape)
        mean, log_var = mlp(x)
        bounds = [jnp.full((self.outputs,), bound) for bound in (low, high)]
        if c.learned_bounds:
            names = ("log_var_low", "log_var_high")
            bounds = [self.param(n, lambda _, b=b: b) for n, b in zip(names, bounds, strict=True)]
        return mean, soft_clamp(log_var, *bounds)


def gaussian_network(config: EnsembleConfig, inputs: int, outputs: int) -> Network:
    """One member: `[.., inputs] -> (mean, log_var)`, each `[.., outputs]`."""
    example = jax.ShapeDtypeStruct((1, inputs), jnp.float32)
    return from_linen(_GaussianMLP(config, outputs), example)


def _optimiser(config: EnsembleConfig) -> optax.GradientTransformation:
    """Adam with decay of the kernels, one strength per layer, before it or after it.

    The learning rate is the last part of its state, where `update` can lower it.
    """
    depth = len(config.hidden)
    decay = config.weight_decay * (depth + 1 if len(config.weight_decay) == 1 else 1)

    def weights(params: PyTree) -> PyTree:
        def of(path: tuple, leaf: jax.Array) -> float:
            names = [str(getattr(p, "key", "")) for p in path]
            if names[-1] != "kernel":
                return 0.0
            return decay[min(int(names[-2].split("_")[1]), depth)]

        return jax.tree_util.tree_map_with_path(of, params)

    def add_decay(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, PyTree]:
        decayed = jax.tree.map(lambda u, w, p: u + w * p, updates, weights(params), params)
        return decayed, state

    adam = optax.scale_by_adam()
    decayed = optax.GradientTransformation(lambda params: optax.EmptyState(), add_decay)
    order = (decayed, adam) if config.decay == "coupled" else (adam, decayed)
    rate = optax.GradientTransformation(
        lambda params: jnp.float32(config.learning_rate),
        lambda updates, rate, params=None: (jax.tree.map(lambda u: -rate * u, updates), rate),
    )
    return optax.chain(*order, rate)


class FitParts(NamedTuple):
    """What the functions of this module are bound to."""

    config: EnsembleConfig
    members: Ensemble
    optimiser: optax.GradientTransformation


@functools.lru_cache(maxsize=32)
def make_fitter(config: EnsembleConfig, inputs: int, outputs: int) -> Fitter:
    """Bind the functions that fit an ensemble. Equal arguments give the same functions."""
    check(config)
    members = ensemble(gaussian_network(config, inputs, outputs), config.members)
    parts = FitParts(config, members, _optimiser(config))
    return Fitter(members, *(functools.partial(f, parts) for f in (init, update, finished)))


def init(parts: FitParts, key: jax.Array, data: FitData | None = None) -> FitState:
    """Fresh members; what they are fitted to does not matter to their beginning."""
    del data
    init_key, key = jax.random.split(key)
    params = parts.members.init(init_key)
    worst = jnp.full((parts.config.members,), jnp.inf)
    moments, zero = parts.optimiser.init(params), jnp.int32(0)
    return FitState(params, moments, params, worst, zero, zero, key)


def loss(params: PyTree, parts: FitParts, x: jax.Array, y: jax.Array) -> tuple[jax.Array, None]:
    """`sum_n mean 2 nll_n(y | x)`, plus what keeps learned bounds of the variance together.

    Chua et al. 2018 (PETS), appendix A.1; `x` is `[N, B, I]`, `y` `[N, B, O]`. The public codes
    leave the likelihood's half out and share the bounds; here each member has its own, which
    pull with an `N`-th each. With `beta` it is `mean sg(sigma^(2 beta)) 2 nll` (Seitzer et al.
    2022, equation 5), sg being the stopped gradient.
    """
    mean, log_var = parts.members.apply_each(params, x)
    likelihood = gaussian_nll(mean, log_var, y)
    if parts.config.beta:
        likelihood *= jax.lax.stop_gradient(jnp.exp(parts.config.beta * log_var))
    total = 2.0 * likelihood.mean((1, 2)).sum()
    if "log_var_high" in params:
        gap = (params["log_var_high"] - params["log_var_low"]).mean(0).sum()
        total += parts.config.bound_weight * gap
    return total, None


def epoch_order(parts: FitParts, state: FitState, rows: int) -> jax.Array:
    """Which rows each member sees in this epoch: `[steps, N, batch]`, a bootstrap if asked for."""
    config = parts.config
    batch = min(config.batch_size, rows)
    steps = rows // batch
    bootstrap_key = jax.random.fold_in(state.key, 0)
    order_key = jax.random.fold_in(state.key, 1 + state.epoch)

    def order(member: jax.Array) -> jax.Array:
        shuffled = jax.random.permutation(jax.random.fold_in(order_key, member), rows)
        if not config.bootstrap:
            return shuffled
        drawn = jax.random.randint(jax.random.fold_in(bootstrap_key, member), (rows,), 0, rows)
        return drawn[shuffled]

    index = jax.vmap(order)(jnp.arange(config.members))[:, : steps * batch]
    return index.reshape(config.members, steps, batch).swapaxes(0, 1)


def judge(
    parts: FitParts, params: PyTree, best_loss: jax.Array, data: FitData
) -> tuple[jax.Array, jax.Array]:
    """Every member's error on the holdout, and whether it is better than its snapshot's: `[N]`."""
    config = parts.config
    mean, log_var = parts.members.apply_all(params, data.holdout_inputs)
    if config.judge == "mse":
        holdout = jnp.square(mean - data.holdout_targets).mean((1, 2))
        return holdout, holdout < best_loss * (1.0 - config.improvement)
    # A likelihood has no zero to be a share of.
    holdout = gaussian_nll(mean, log_var, data.holdout_targets).mean((1, 2))
    return holdout, holdout < best_loss - config.improvement


def next_rate(parts: FitParts, moments: Any, early: jax.Array) -> tuple[Any, jax.Array]:
    """Lower the rate where patience ran out too `early`, and tell whether it was lowered."""
    config, (*others, rate) = parts.config, moments
    if config.rate_drop is None:
        return moments, jnp.bool_(False)
    lower = early & (rate >= config.learning_rate)
    return (*others, jnp.where(lower, rate * config.rate_drop, rate)), lower


def annealed(parts: FitParts, moments: Any, epoch: jax.Array) -> Any:
    """The rate of one epoch along the cosine, where that is asked for."""
    config, (*others, _) = parts.config, moments
    if not config.cosine:
        return moments
    share = jnp.minimum(epoch / config.max_epochs, 1.0)
    return (*others, 0.5 * config.learning_rate * (1.0 + jnp.cos(jnp.pi * share)))


def update(
    parts: FitParts, state: FitState, data: FitData
) -> tuple[FitState, dict[str, jax.Array]]:
    """One epoch, then the holdout's verdict on every member."""
    config = parts.config

    def one(carry: tuple, chosen: jax.Array) -> tuple[tuple, jax.Array]:
        x, y = data.inputs[chosen], data.targets[chosen]
        *carry, value, _ = descend(parts.optimiser, loss, *carry, parts, x, y)
        return tuple(carry), value

    index = epoch_order(parts, state, data.inputs.shape[0])
    begin = (state.params, annealed(parts, state.opt_state, state.epoch))
    (params, moments), losses = jax.lax.scan(one, begin, index)
    holdout, better = judge(parts, params, state.best_loss, data)
    epoch, stale = state.epoch + 1, jnp.where(better.any(), 0, state.stale + 1)
    early = (stale >= config.patience) & (epoch < config.least_epochs)
    moments, lowered = next_rate(parts, moments, early)
    fresh = FitState(
        params,
        moments,
        best=select_members(better, params, state.best),
        best_loss=jnp.where(better, holdout, state.best_loss),
        stale=jnp.where(lowered, 0, stale),
        epoch=epoch,
        key=state.key,
    )
    # A finished ensemble stands still while others beside it (other seeds) go on.
    done = (state.stale >= config.patience) & (state.epoch >= config.least_epochs)
    state = jax.tree.map(lambda old, new: jnp.where(done, old, new), state, fresh)
    metrics = {
        "loss": 0.5 * losses.mean() / config.members,
        f"holdout_{config.judge}": holdout.mean(),
        f"best_holdout_{config.judge}": state.best_loss.mean(),
        "stale_epochs": state.stale,
    }
    if config.least_epochs:
        metrics["epoch"] = state.epoch
    return state, metrics


def finished(parts: FitParts, metrics: Mapping[str, np.ndarray]) -> bool:
    """No member of any ensemble has improved for `patience` epochs, beyond `least_epochs`."""
    config = parts.config
    enough = np.asarray(metrics.get("epoch", config.least_epochs)) >= config.least_epochs
    return bool(((metrics["stale_epochs"] >= config.patience) & enough).all())


def elite_members(state: FitState, count: int) -> jax.Array:
    """Indices of the `count` snapshots with the least holdout error, best first, `[count]`."""
    return jnp.argsort(state.best_loss)[:count].astype(jnp.int32)


def split_holdout(
    config: EnsembleConfig, inputs: np.ndarray, targets: np.ndarray, *, seed: int = 0
) -> FitData:
    """Set aside `min(holdout_share * n, holdout_rows)` random rows, the same for all members.

    Raises:
        ConfigError: too few rows to leave both parts non-empty.
    """
    count = min(int(len(inputs) * config.holdout_share), config.holdout_rows)
    if count < 1 or count >= len(inputs):
        raise ConfigError("rows", len(inputs), "enough for a holdout and a training part")
    order = np.random.default_rng(seed).permutation(len(inputs))
    held, kept = order[:count], np.sort(order[count:])
    return FitData(*map(jnp.asarray, (inputs[kept], targets[kept], inputs[held], targets[held])))
