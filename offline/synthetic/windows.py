"""Windows of logged episodes as rows of a diffusion model, and back to transitions.

A window of `L` states holds `L - 1` whole transitions: its last step is a state only, whose action
and reward are zero. Terminal states are absorbing: the window continues in the last state with zero
action and reward, and the termination flag stays 1. So terminations occur at every step of a window
with the data's frequency, as a step function instead of a single spike. (In policy-guided
diffusion's public code only the discarded step can terminate, so synthetic data never do. Windows
that end at a termination are too rare: a small network generated a tenth of them.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import devices
from jaxrl_rollouts.diffusion import (
    Denoiser,
    Flow,
    Guidance,
    JumpConfig,
    SamplerConfig,
    check_finite,
    draw_samples,
)
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.scaler import Scaler, fit_scaler
from jaxrl_rollouts.trees import PyTree

from ..data import Episodes, Transitions, episodes

LIMIT = 0.999  # actions beyond it have no usable atanh


class EpisodeWindows(NamedTuple):
    """`[W, L, ...]` arrays on the host; the last step's action and reward are zero.

    Terminations are on from the transition that ends the episode to the end of the window.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray


def window_starts(parts: Episodes, length: int, stride: int) -> np.ndarray:
    """First rows of the windows of `parts`, ascending.

    Every `stride`-th possible start and every start of an episode. In an episode that terminates
    every row is possible; in one that was cut off, those whose window fits into it.
    """
    last = np.where(parts.terminated, parts.ends - 1, parts.ends - (length - 1))
    fits = last >= parts.starts
    spans = zip(parts.starts[fits], last[fits], strict=True)
    possible = np.concatenate([np.arange(a, b + 1) for a, b in spans] or [np.zeros(0, np.int64)])
    return np.unique(np.concatenate([possible[::stride], parts.starts[fits]]))


def cut_windows(
    transitions: Transitions, length: int, stride: int = 8, *, source: str = "dataset"
) -> EpisodeWindows:
    """Cut windows of `length` states of one episode each.

    Args:
        transitions: the rows, actions in [-1, 1].
        length: states per window, at least 2.
        stride: between starts; see `window_starts`.
        source: the dataset's name, for messages.

    Raises:
        ConfigError: `length` below 2 or `stride` below 1.
        DataError: every episode was cut off and is shorter than a window, or actions leave
            [-1, 1].
    """
    if length < 2 or stride < 1:
        raise ConfigError("length, stride", (length, stride), "at least 2 and at least 1")
    t = Transitions(*(np.asarray(column) for column in transitions))
    largest = float(np.abs(t.actions).max()) if len(t.actions) else 0.0
    if largest > 1.0 + 1e-3:
        raise DataError(source, "actions", f"values up to {largest:g}", "values in [-1, 1]")
    parts = episodes(t)
    starts = window_starts(parts, length, stride)
    if not len(starts):
        longest = int(parts.lengths.max(initial=0)) + 1
        raise DataError(
            source,
            "episodes",
            f"at most {longest} states",
            f"{length}, one window",
            "choose shorter windows",
        )
    # The last row of each window's episode.
    last = parts.ends[np.searchsorted(parts.ends, starts, side="right")] - 1
    rows = starts[:, None] + np.arange(length)
    over = rows > last[:, None]  # the episode has ended
    over[:, -1] = True  # a state only
    rows = np.minimum(rows, last[:, None])

    def until_the_end(column: np.ndarray) -> np.ndarray:
        taken = column[rows]
        return np.where(over.reshape(over.shape + (1,) * (taken.ndim - 2)), 0, taken)

    # A state is where the row before led to, so that it stays where the episode ended.
    states = np.concatenate([t.observations[starts][:, None], t.next_observations[rows[:, :-1]]], 1)
    ended = np.maximum.accumulate(t.terminations[rows] & ~over, 1)
    return EpisodeWindows(states, until_the_end(t.actions), until_the_end(t.rewards), ended)


class WindowLayout(NamedTuple):
    """How windows become standardised rows `[B, L, C]` and back; see `fit_window_layout`.

    Channels: observation, atanh of the action, reward, termination.

    Attributes:
        scaler: per channel; the termination stays 0 or 1.
        observation_size, action_size: S and A; C is S + A + 2.
        length: L, states per window, in training and in generation.
        terminals: whether the data have any termination; if not, generated ones are noise in a
            channel that was always zero, and `unpack` makes none.
    """

    scaler: Scaler
    observation_size: int
    action_size: int
    length: int
    terminals: bool = True

    @property
    def channels(self) -> int:
        return self.observation_size + self.action_size + 2

    @property
    def guided(self) -> tuple[int, int]:
        """First and one past the last action channel."""
        return self.observation_size, self.observation_size + self.action_size

    def pack(self, windows: EpisodeWindows) -> jax.Array:
        """Standardised windows, `[W, L, C]` float32."""
        return self.scaler.normalise(_channels(windows))

    def states_and_actions(self, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Observations `[..., S]` in data units and actions `[..., A]` in (-1, 1)."""
        rows = self.scaler.denormalise(rows)
        low, high = self.guided
        return rows[..., :low], jnp.tanh(rows[..., low:high])

    def unpack(self, rows: jax.Array) -> tuple[Transitions, jax.Array]:
        """`[B, L, C]` to `B (L - 1)` transitions, window by window, and which of them are valid.

        What follows a termination inside a window is not.
        """
        states, actions = self.states_and_actions(rows)
        plain = self.scaler.denormalise(rows)
        ends = (plain[:, :-1, -1] > 0.5) & self.terminals
        before = jnp.cumsum(ends, 1) - ends
        made = Transitions(
            states[:, :-1],
            actions[:, :-1],
            plain[:, :-1, -2],
            states[:, 1:],
            ends,
            jnp.zeros_like(ends),
        )
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), made)
        return flat, (before == 0).reshape(-1)


def _channels(windows: EpisodeWindows) -> jax.Array:
    unbounded = np.arctanh(np.clip(windows.actions, -LIMIT, LIMIT))
    parts = [windows.observations, unbounded]
    parts += [windows.rewards[..., None], windows.terminations[..., None]]
    return jnp.asarray(np.concatenate([p.astype(np.float32) for p in parts], -1))


def fit_window_layout(windows: EpisodeWindows) -> WindowLayout:
    """Statistics over all windows and times, zero steps included, as the rows are trained on."""
    flat = _channels(windows)
    scaler = fit_scaler(flat.reshape(-1, flat.shape[-1]))
    scaler = Scaler(scaler.mean.at[-1].set(0.0), scaler.std.at[-1].set(1.0))
    sizes = windows.observations.shape[-1], windows.actions.shape[-1]
    return WindowLayout(scaler, *sizes, flat.shape[1], bool(windows.terminations.any()))


class WindowModel(NamedTuple):
    """A trained model of windows; `params` are its averaged weights."""

    denoiser: Denoiser | Flow
    params: PyTree
    layout: WindowLayout


def generate_windows(
    denoiser: Denoiser | Flow,
    params: PyTree,
    key: jax.Array,
    layout: WindowLayout,
    count: int,
    *,
    config: SamplerConfig | JumpConfig,
    batch: int = 512,
    guidance: Guidance | None = None,
    guide: PyTree = None,
) -> jax.Array:
    """`[count, L, C]` standardised windows, at most `batch` at a time on every core."""
    cores = len(jax.devices())
    each = min(batch, -(-count // cores))
    shape = each, layout.length, layout.channels
    keys = jax.random.split(key, (cores, -(-count // (cores * each))))

    settings: dict[str, Any] = {"config": config, "guidance": guidance}

    def part(keys: jax.Array, shared: tuple) -> jax.Array:
        def once(key: jax.Array) -> jax.Array:
            params, guide = shared
            return draw_samples(denoiser, params, key, shape, guide_params=guide, **settings)

        return jax.lax.map(once, keys).reshape(-1, *shape[1:])

    drawn = devices.map_seeds(part, keys, (params, guide))
    return check_finite(drawn.reshape(-1, *shape[1:])[:count], "windows")
