"""Any-step dynamics (Lin et al. 2024, arXiv:2405.17031): one network, many ways to the next state.

The next state is predicted from the state k steps back and the k actions since, k = 1 to m. A
rollout draws k anew at every step; how far the m predictions are apart is the uncertainty, in the
place of an ensemble's disagreement.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.configs import number, positive, step_size
from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.fit_data import FitData, part_rows
from jaxrl_rollouts.fitting import Fitter, make_fitter
from jaxrl_rollouts.gaussian import Gaussian, soft_clamp
from jaxrl_rollouts.networks import from_linen, orthogonal
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.rollouts import Model, step_result
from jaxrl_rollouts.scaler import Scaler, fit_scaler, identity_scaler

from ..data import Transitions, episodes
from ..data.transitions import RAW, RewardScale
from ..task import Task, slug, termination_of
from .dynamics import Dynamics, EliteSamples, Termination, WorldModelParams
from .endings import TerminationConfig, ended, with_endings
from .fit import ENDING, WorldModel, fit_model


@dataclass(frozen=True)
class AnyStepConfig:
    """An any-step model and its fit; defaults are ADMPO's.

    Attributes:
        version: `adm`, or `adm2` (ADM-v2): the state k steps back is the recurrent layers' first
            memory, which actions alone drive, and the last of the k changes is predicted.
        backtrack: m, the most steps back.
        width: width of all layers.
        layers: recurrent ones (GRU).
        blocks: residual ones between the last of them and the heads.
        shared: fit one and give it to every seed; else each seed has its own.
        termination, ending: how imagined episodes end, as in `WorldModelConfig`.
        lr: learning rate of Adam.
        batch_size: rows of a gradient step.
        max_epochs: passes over all rows with all lengths, at most.
        patience: epochs without an improvement after which the fit ends.
        holdout_fraction, holdout_rows: share and largest number of the transitions that snapshots
            are evaluated on.
    """

    members: ClassVar[int] = 1
    version: Literal["adm", "adm2"] = "adm"
    backtrack: int = positive(2)
    width: int = positive(200)
    layers: int = positive(3)
    blocks: int = number(4, least=0)
    shared: bool = False
    termination: Literal["known", "learned"] = "known"
    ending: TerminationConfig = TerminationConfig()
    lr: float = step_size(3e-4)
    batch_size: int = positive(256)
    max_epochs: int = positive(100)
    patience: int = positive(25)
    holdout_fraction: float = number(0.2, above=0, below=1)
    holdout_rows: int = positive(1000)

    @property
    def regression(self) -> EnsembleConfig:
        """What of the fit is every Gaussian regression's."""
        return EnsembleConfig(
            members=1,
            elites=1,
            hidden_dims=(self.width,),
            bootstrap=False,
            lr=self.lr,
            weight_decay=(0.0,),
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            patience=self.patience,
            improvement=0.0,
            holdout_fraction=self.holdout_fraction,
            holdout_rows=self.holdout_rows,
        )

    def fit(
        self,
        task: Task,
        seeds: int,
        seed: int,
        context: RunContext | None,
        reward: RewardScale = RAW,
    ) -> tuple[Dynamics, WorldModelParams]:
        """Fit to a dataset; arguments as for `WorldModelConfig.fit`.

        Returns:
            Functions and parameters, leaves `[seeds, ...]`, or of one model where it is `shared`.
        """
        dataset, name = task.dataset, slug(task.dataset.name)
        rule = termination_of(dataset, task.env, self)
        key, rows = jax.random.split(as_key(seed, "seed"))[0], reward.of(dataset.with_successors)
        model = make_any_step(self, rows)
        run: dict[str, Any] = {"seeds": 1 if self.shared else seeds, "context": context}
        own: Any = self  # which a resumed fit is compared with
        stage = f"{name}-world"
        run["on_divergence"] = "drop"
        worlds = fit_model(model, own, key, stage=stage, **run).worlds
        if isinstance(rule, TerminationConfig):
            stage, end_key = f"{name}-termination", jax.random.fold_in(key, ENDING)
            worlds = with_endings(worlds, rule, rows, end_key, stage=stage, **run)
        if self.shared:
            worlds = jax.tree.map(lambda x: x[0], worlds)
        return any_step_dynamics(model.fitter, self.backtrack, rule, self.version), worlds


class _AnyStep(nn.Module):
    """State, m actions and length k, `[..., S + m A + 1]`, to mean and log-variance.

    Of inputs of one length the k actions are enough, `[..., S + k A + 1]`.
    """

    config: AnyStepConfig
    sizes: tuple[int, int]

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        c, (states, actions) = self.config, self.sizes
        state, taken, length = jnp.split(x, [states, x.shape[-1] - 1], -1)
        taken = taken.reshape(*x.shape[:-1], -1, actions)
        read = list(jnp.moveaxis(taken, -2, 0))
        if c.version == "adm":
            read = [jnp.concatenate([state, given], -1) for given in read]
            # One memory for all rows: nothing is multiplied by a matrix of zeros.
            first = [jnp.zeros((1,) * (x.ndim - 1) + (c.width,))] * c.layers
        else:
            memory = nn.Dense(c.layers * c.width)(self.blocks(nn.Dense(c.width)(state)))
            first = jnp.split(memory, c.layers, -1)
        before = kept = first[-1]
        for memory in first:
            cell, kept = nn.GRUCell(c.width, recurrent_kernel_init=orthogonal()), memory
            for j, given in enumerate(read):
                # Actions before the state that is read are passed over.
                used, before = len(read) - j <= length, kept
                kept = jnp.where(used, cell(kept, given)[0], kept)
                read[j] = kept
        if c.version == "adm2":
            kept = nn.Dense(c.width)(jnp.concatenate([before, kept], -1))
        out = self.blocks(kept)
        mean, log_var = (nn.Dense(states + 1)(out) for _ in range(2))
        low, high = (
            self.param(name, lambda _, bound=bound: jnp.full((states + 1,), bound))
            for name, bound in (("log_var_low", -10.0), ("log_var_high", 0.5))
        )
        return mean, soft_clamp(log_var, low, high)

    def blocks(self, out: jax.Array) -> jax.Array:
        """Residual blocks."""
        for _ in range(self.config.blocks):
            out = nn.LayerNorm(epsilon=1e-5)(out + nn.swish(nn.Dense(self.config.width)(out)))
        return out


@functools.lru_cache(maxsize=16)
def _fitter(config: AnyStepConfig, states: int, actions: int) -> Fitter:
    inputs = states + config.backtrack * actions + 1
    example = jax.ShapeDtypeStruct((1, inputs), jnp.float32)
    network = from_linen(_AnyStep(config, (states, actions)), example)
    return make_fitter(config.regression, inputs, states + 1, network)


def ages(transitions: Transitions) -> np.ndarray:
    """Steps since the beginning of a row's episode, `[N]`."""
    parts = episodes(transitions)
    return np.arange(len(transitions.rewards)) - np.repeat(parts.starts, parts.lengths)


def expanded(
    transitions: Transitions, backtrack: int, rows: np.ndarray, *, last: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Every length k of every row that its episode is long enough for.

    Args:
        transitions: on the host.
        backtrack: m.
        rows: indices of the predicted transitions.
        last: predict the last change only, `s_{t + 1} - s_t`.

    Returns:
        Inputs `[n, S + m A + 1]`: the state k - 1 rows before, actions since (zeros before them),
        and k; targets `[n, S + 1]`: `s_{t + 1} - s_{t - k + 1}` and `r_t`.
    """
    t, age = transitions, ages(transitions)
    observations, actions = np.asarray(t.observations), np.asarray(t.actions)
    inputs, targets = [], []
    for k in range(1, backtrack + 1):
        own = rows[age[rows] >= k - 1]
        back = np.arange(backtrack)[::-1]
        taken = actions[np.maximum(own[:, None] - back, 0)] * (back < k)[:, None]
        first, length = observations[own - k + 1], np.full((len(own), 1), k)
        inputs.append(np.concatenate([first, taken.reshape(len(own), -1), length], 1))
        change = np.asarray(t.next_observations)[own] - (observations[own] if last else first)
        targets.append(np.concatenate([change, np.asarray(t.rewards)[own, None]], 1))
    return np.concatenate(inputs).astype(np.float32), np.concatenate(targets).astype(np.float32)


def make_any_step(config: AnyStepConfig, transitions: Transitions) -> WorldModel:
    """Prepare data, scalers and functions; a transition is held out with all its lengths.

    Raises:
        ConfigError: no episode is as long as `backtrack`.
    """
    longest = int(ages(transitions).max(initial=-1)) + 1
    if longest < config.backtrack:
        expected = f"at most the longest episode, {longest} steps"
        raise ConfigError("world.backtrack", config.backtrack, expected)
    sizes = transitions.observations.shape[1], transitions.actions.shape[1]
    of_states, of_actions = (
        fit_scaler(jnp.asarray(x)) for x in (transitions.observations, transitions.actions)
    )
    tiled = [jnp.tile(x, config.backtrack) for x in of_actions]
    mean = jnp.concatenate([of_states.mean, tiled[0], jnp.zeros(1)])
    inputs = Scaler(mean, jnp.concatenate([of_states.std, tiled[1], jnp.ones(1)]))
    parts = part_rows(config.regression, len(transitions.rewards))
    last = config.version == "adm2"
    learned, held = (expanded(transitions, config.backtrack, rows, last=last) for rows in parts)
    data = FitData(
        inputs.normalise(jnp.asarray(learned[0])),
        jnp.asarray(learned[1]),
        inputs.normalise(jnp.asarray(held[0])),
        jnp.asarray(held[1]),
    )
    units = identity_scaler(sizes[0] + 1)
    return WorldModel(_fitter(config, *sizes), data, inputs, units, 1, "raw")


class Recent(NamedTuple):
    """A state of the model: the last m observations `[B, m, S]`, and the m - 1 actions between."""

    observations: jax.Array
    actions: jax.Array


def predict(
    fitter: Fitter,
    world: WorldModelParams,
    observations: jax.Array,
    actions: jax.Array,
    length: int,
    latest: jax.Array | None = None,
) -> Gaussian:
    """Normal over next state and reward from `observations [B, S]`, `length` steps back.

    Args:
        fitter, world: the model.
        observations: `[B, S]`.
        actions: `[B, m, A]`, of which the last `length` count.
        length: k.
        latest: `[B, S]`, of `adm2`: the state that the change is counted from.
    """
    batch = len(observations)
    k = jnp.full((batch, 1), float(length))
    x = jnp.concatenate([observations, actions.reshape(batch, -1), k], -1)
    state, rest = jnp.split(world.inputs.normalise(x), [observations.shape[-1]], -1)
    # Without the actions that are passed over: no cell runs for nothing.
    rest = rest[:, (actions.shape[1] - length) * actions.shape[2] :]
    mean, log_var = fitter.ensemble.apply_all(world.elites, jnp.concatenate([state, rest], -1))
    origin = observations if latest is None else latest
    before = jnp.concatenate([origin, jnp.zeros((batch, 1))], -1)
    return Gaussian(mean[0] + before, jnp.exp(0.5 * log_var[0]))


@functools.lru_cache(maxsize=16)
def any_step_dynamics(
    fitter: Fitter,
    backtrack: int,
    termination: Termination | TerminationConfig,
    version: Literal["adm", "adm2"] = "adm",
) -> Dynamics:
    """Dynamics whose state is `Recent`. Equal arguments give the same functions.

    The uncertainty is `sqrt(mean_j var_k E[s_{t + 1, j} | k])`, in the data's units; 0 for m = 1.

    Args:
        fitter: result of `make_any_step`.
        backtrack: m.
        termination: as for `learned_dynamics`.
        version: version of the model. The variance of `adm2` is divided by m - 1.
    """
    second = version == "adm2"

    def step(
        world: WorldModelParams, key: jax.Array, state: Recent, action: jax.Array, member: Any
    ) -> tuple:
        taken = jnp.concatenate([state.actions, action[:, None]], 1)
        last = state.observations[:, -1] if second else None
        every = [
            predict(fitter, world, state.observations[:, -k], taken, k, last)
            for k in range(1, backtrack + 1)
        ]
        means, stds = (jnp.stack(x) for x in zip(*every, strict=True))
        length_key, noise_key = jax.random.split(key)
        k = jax.random.randint(length_key, (), 0, backtrack)
        drawn = Gaussian(means[k], stds[k]).sample(noise_key)
        now, following = state.observations[:, -1], drawn[:, :-1]
        apart = means[..., :-1].var(0, ddof=int(second and backtrack > 1))
        apart = jnp.sqrt(apart.mean(-1))
        seen = jnp.concatenate([state.observations[:, 1:], following[:, None]], 1)
        done = ended(termination, world.ending, now, action, following)
        result = step_result(len(now), reward=drawn[:, -1], terminated=done, uncertainty=apart)
        return Recent(seen, taken[:, 1:]), result

    def sample_elites(
        world: WorldModelParams, key: jax.Array, observations: jax.Array, actions: jax.Array
    ) -> EliteSamples:
        taken = jnp.zeros((len(actions), backtrack, actions.shape[-1])).at[:, -1].set(actions)
        drawn = predict(fitter, world, observations, taken, 1).sample(key)
        done = ended(termination, world.ending, observations, actions, drawn[:, :-1])
        return EliteSamples(drawn[None, :, -1], drawn[None, :, :-1], done[None])

    return Dynamics(Model(step, lambda state: state.observations[:, -1]), sample_elites, 1)
