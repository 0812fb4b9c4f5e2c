"""Fit an ensemble of Gaussian regressors: bootstrap, holdout, best snapshots, elites.

An iteration of the training loop is one epoch. Each member sees its own bootstrap sample (of all
rows, or of those of its group) in its own order; after each epoch every member that improved on the
holdout by enough is remembered; fitting stops once no member has improved for `patience` epochs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from .configs import check
from .descent import gradient_step
from .ensemble import Ensemble, ensemble, select_members
from .ensemble_config import ACTIVATIONS, INITIALISERS, EnsembleConfig
from .fit_data import FitData
from .gaussian import gaussian_nll, soft_clamp
from .networks import MLP, Network, from_linen
from .trees import PyTree


class FitState(NamedTuple):
    """State of the fit of one ensemble. `best` and `best_loss` are the snapshots to use."""

    params: PyTree
    opt_state: Any
    best: PyTree
    best_loss: jax.Array  # [N] holdout error of the snapshots, by the selection metric
    stale: jax.Array  # int32: epochs since any member improved
    epoch: jax.Array  # int32: passes over the rows so far
    key: jax.Array


class Fitter(NamedTuple):
    """Functions for one architecture.

    Attributes:
        ensemble: its `apply_*` return `(mean, log_var)`.
        init: `(key, data=None) -> FitState`.
        update: one epoch, `(FitState, FitData) -> (FitState, metrics)`.
        finished: whether the training loop stops early.
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
            c.hidden_dims,
            (self.outputs,) * (2 if own else 1),
            ACTIVATIONS[c.activation],
            c.layer_norm,
            kernel_init=INITIALISERS[c.initialiser],
            bias_init=None if c.biases == "uniform" else jax.nn.initializers.zeros,
        )
        found: Any = mlp(x)
        mean, log_var = found if own else (found, None)
        return bounded(self, c, mean, log_var)


def bounded(
    own: nn.Module, config: EnsembleConfig, mean: jax.Array, log_var: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Mean and log-variance `[..., O]` between the bounds that a module learns or is given.

    Without a log-variance there is one for each output.
    """
    outputs, low, high = mean.shape[-1:], config.log_var_low, config.log_var_high
    if log_var is None or config.variance == "output":
        # Adam moves every number alike; at the weights' pace this one would lag behind.
        tenth = own.param("tenth_log_var", jax.nn.initializers.zeros, outputs)
        return mean, jnp.broadcast_to(jnp.maximum(10.0 * tenth, low), mean.shape)
    bounds = [jnp.full(outputs, bound) for bound in (low, high)]
    if config.learned_bounds:
        names = ("log_var_low", "log_var_high")
        bounds = [own.param(n, lambda _, b=b: b) for n, b in zip(names, bounds, strict=True)]
    return mean, soft_clamp(log_var, *bounds)


def gaussian_network(config: EnsembleConfig, inputs: int, outputs: int) -> Network:
    """One member: `[.., inputs] -> (mean, log_var)`, each `[.., outputs]`."""
    example = jax.ShapeDtypeStruct((1, inputs), jnp.float32)
    return from_linen(_GaussianMLP(config, outputs), example)


def make_optimiser(config: EnsembleConfig) -> optax.GradientTransformation:
    """Adam with decay of the kernels, one strength per layer, before it or after it.

    The learning rate is the last part of its state, where `update` can lower it.
    """
    depth, decay = len(config.hidden_dims), config.layer_decay()

    def weights(params: PyTree) -> PyTree:
        def of(path: tuple, leaf: jax.Array) -> float:
            names = [str(getattr(p, "key", "")) for p in path]
            number = names[-2].rpartition("_")[2] if names[-1] == "kernel" else ""
            # Layers are numbered; the products inside a recurrent cell are not.
            return decay[min(int(number), depth)] if number.isdigit() else 0.0

        return jax.tree_util.tree_map_with_path(of, params)

    def add_decay(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, PyTree]:
        decayed = jax.tree.map(lambda u, w, p: u + w * p, updates, weights(params), params)
        return decayed, state

    def downhill(updates: PyTree, state: Any, params: PyTree = None) -> tuple[PyTree, Any]:
        return jax.tree.map(lambda u: -state * u, updates), state

    adam = optax.scale_by_adam()
    decayed = optax.GradientTransformation(lambda params: optax.EmptyState(), add_decay)
    # PETS and MOPO add the decay to the gradient (L2); AdamW's decay is behind Adam.
    order = (decayed, adam) if config.decay == "coupled" else (adam, decayed)
    rate = optax.GradientTransformation(lambda params: jnp.float32(config.lr), downhill)
    return optax.chain(*order, rate)


class FitParts(NamedTuple):
    """What the functions of this module are bound to."""

    config: EnsembleConfig
    members: Ensemble
    optimiser: optax.GradientTransformation


@functools.lru_cache(maxsize=32)
def make_fitter(
    config: EnsembleConfig, inputs: int, outputs: int, network: Network | None = None
) -> Fitter:
    """Bind the functions that fit an ensemble. Equal arguments give the same functions.

    Args:
        config: settings of the fit and, without a `network`, of its members.
        inputs, outputs: sizes.
        network: a member of another architecture, `[..., inputs] -> (mean, log_var)`.
    """
    check(config)
    member = network or gaussian_network(config, inputs, outputs)
    members = ensemble(member, config.members)
    parts = FitParts(config, members, make_optimiser(config))
    bound: Any = (functools.partial(f, parts) for f in (init, update, finished))
    return Fitter(members, *bound)


def init(parts: FitParts, key: jax.Array, data: FitData | None = None) -> FitState:
    """Fresh members; what they are fitted to does not matter to their beginning."""
    del data
    init_key, key = jax.random.split(key)
    params = parts.members.init(init_key)
    # Infinite, so that the first epoch's members are snapshots whatever their error.
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
        # exp(beta log_var) is sigma^(2 beta); without the stop it would reward large variances.
        likelihood *= jax.lax.stop_gradient(jnp.exp(parts.config.beta * log_var))
    # Summed over members: each has the gradient it would have alone, whatever their number.
    total = 2.0 * likelihood.mean((1, 2)).sum()
    if "log_var_high" in params:
        gap = (params["log_var_high"] - params["log_var_low"]).mean(0).sum()
        total += parts.config.bound_weight * gap
    return total, None


def epoch_order(parts: FitParts, state: FitState, data: FitData) -> jax.Array:
    """Each member's rows in this epoch: `[steps, N, batch]`, bootstrapped if so configured."""
    config, own = parts.config, data.own
    rows = data.inputs.shape[0] if own is None else own.learned.shape[1]
    batch = min(config.batch_size, rows)
    # The rest of an epoch is dropped, since a smaller last batch would be another program.
    steps = rows // batch
    # The same every epoch: a bootstrap sample is a dataset, only its order changes.
    bootstrap_key = jax.random.fold_in(state.key, 0)
    order_key = jax.random.fold_in(state.key, 1 + state.epoch)

    def order(member: jax.Array) -> jax.Array:
        shuffled = jax.random.permutation(jax.random.fold_in(order_key, member), rows)
        if not config.bootstrap:
            return shuffled
        drawn = jax.random.randint(jax.random.fold_in(bootstrap_key, member), (rows,), 0, rows)
        return drawn[shuffled]

    index = jax.vmap(order)(jnp.arange(config.members))[:, : steps * batch]
    if own is not None:
        index = jnp.take_along_axis(own.learned, index, 1)
    return index.reshape(config.members, steps, batch).swapaxes(0, 1)


def select_snapshots(
    parts: FitParts, params: PyTree, best_loss: jax.Array, data: FitData
) -> tuple[jax.Array, jax.Array]:
    """Every member's error on the holdout, and whether it is better than its snapshot's: `[N]`."""
    config = parts.config
    inputs, targets = data.holdout_inputs, data.holdout_targets
    if data.own is None:
        mean, log_var = parts.members.apply_all(params, inputs)
    else:
        inputs, targets = inputs[data.own.held], targets[data.own.held]
        mean, log_var = parts.members.apply_each(params, inputs)
    if config.selection_metric == "mse":
        holdout = jnp.square(mean - targets).mean((1, 2))
        return holdout, holdout < best_loss * (1.0 - config.improvement)
    # A likelihood has no zero to be a share of.
    holdout = gaussian_nll(mean, log_var, targets).mean((1, 2))
    return holdout, holdout < best_loss - config.improvement


def next_rate(parts: FitParts, moments: Any, early: jax.Array) -> tuple[Any, jax.Array]:
    """Lower the rate where patience ran out too `early`, and return whether it was lowered."""
    config, (*others, rate) = parts.config, moments
    if config.lr_drop is None:
        return moments, jnp.bool_(False)
    lower = early & (rate >= config.lr)
    return (*others, jnp.where(lower, rate * config.lr_drop, rate)), lower


def annealed(parts: FitParts, moments: Any, epoch: jax.Array) -> Any:
    """The rate of one epoch along the cosine, if there is one."""
    config, (*others, _) = parts.config, moments
    if not config.cosine:
        return moments
    share = jnp.minimum(epoch / config.max_epochs, 1.0)
    return (*others, 0.5 * config.lr * (1.0 + jnp.cos(jnp.pi * share)))


def update(
    parts: FitParts, state: FitState, data: FitData
) -> tuple[FitState, dict[str, jax.Array]]:
    """One epoch, then the holdout's verdict on every member."""
    config = parts.config

    def one(carry: tuple, chosen: jax.Array) -> tuple[tuple, jax.Array]:
        x, y = data.inputs[chosen], data.targets[chosen]
        *after, value, _ = gradient_step(parts.optimiser, loss, *carry, parts, x, y)
        return tuple(after), value

    index = epoch_order(parts, state, data)
    begin = (state.params, annealed(parts, state.opt_state, state.epoch))
    (params, moments), losses = jax.lax.scan(one, begin, index)
    holdout, better = select_snapshots(parts, params, state.best_loss, data)
    epoch, stale = state.epoch + 1, jnp.where(better.any(), 0, state.stale + 1)
    early = (stale >= config.patience) & (epoch < config.min_epochs)
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
    # A finished ensemble stays unchanged while others (other seeds) continue.
    done = (state.stale >= config.patience) & (state.epoch >= config.min_epochs)
    state = jax.tree.map(lambda old, new: jnp.where(done, old, new), state, fresh)
    metrics = {
        "loss": 0.5 * losses.mean() / config.members,
        f"holdout_{config.selection_metric}": holdout.mean(),
        f"best_holdout_{config.selection_metric}": state.best_loss.mean(),
        "stale_epochs": state.stale,
    }
    if config.min_epochs:
        metrics["epoch"] = state.epoch
    return state, metrics


def finished(parts: FitParts, metrics: Mapping[str, np.ndarray]) -> bool:
    """No member of any ensemble has improved for `patience` epochs, beyond `min_epochs`."""
    config = parts.config
    enough = np.asarray(metrics.get("epoch", config.min_epochs)) >= config.min_epochs
    return bool(((metrics["stale_epochs"] >= config.patience) & enough).all())


def elite_members(state: FitState, count: int) -> jax.Array:
    """Indices of the `count` snapshots with the least holdout error, best first, `[count]`."""
    return jnp.argsort(state.best_loss)[:count].astype(jnp.int32)
