"""Values of policies by several estimators, on the same start states and bootstrap draws.

Every estimator gives draws of a policy's value and of the data's: their difference is paired, since
a draw has the same episodes in both.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import DataError, DivergenceError
from jaxrl_rollouts.record.context import RunContext

from ..data import Dataset, episode_returns, episodes
from ..fitted_q import FqeConfig
from .fqe import Evaluated, evaluated
from .models import Models, halves, rows_of
from .played import Played, play_all, possible, steps_of
from .policies import Entry

FEWEST = 8  # episodes
PARTS = 8  # of the log, at most, whose own value is estimated
PER_PART = 5  # episodes at least
NOT_FINITE = "critics diverged (not finite)"
DIVERGED = 0.2  # share of the critics' targets outside the bounds from which on nothing is read


class Log(NamedTuple):
    """What of a log is used: `S` of its episodes, spread over it, and draws of them.

    Attributes:
        dataset: the rows.
        discount: gamma.
        part: `[E]` of every episode, 0 to G - 1; a part's half is its number modulo 2.
        kept: `[S]`, the numbers of the episodes.
        starts: `[S, D]`, where they begin.
        returns: `[S]`, discounted.
        counts: `[draws, S]`, multiplicity of each episode in a bootstrap sample.
    """

    dataset: Dataset
    discount: float
    part: np.ndarray
    kept: np.ndarray
    starts: np.ndarray
    returns: np.ndarray
    counts: np.ndarray

    @property
    def half(self) -> np.ndarray:
        """0 or 1, of the rows that models are fitted to."""
        return rows_of(self.dataset, self.part % 2)

    def of_part(self, number: int) -> np.ndarray:
        """Which of the kept episodes are of a part, `[S]` bool."""
        return self.part[self.kept] == number


class Estimate(NamedTuple):
    """An estimator's values of `P` policies; missing ones are NaN, with a reason.

    Attributes:
        draws: `[P, D]`, bootstrap samples of the values.
        value: `[P]`.
        data: `[D]`, bootstrap samples of the data's value, by this estimator.
        own: that value.
        off: `[G]`, its estimates of the log's parts, less what they earned; empty where none.
        why: `[P]`, why there is no value; "" where there is.
        beyond: `[P]` share of the steps beyond the models' limit; NaN of others.
        beyond_data: the same of the clones.
        members: `[P]`, how many agreed to a finite value, and of how many.
        over_time: `[P][T]`, `beyond` over time.
    """

    draws: np.ndarray
    value: np.ndarray
    data: np.ndarray
    own: float
    off: np.ndarray
    why: list[str]
    beyond: np.ndarray
    beyond_data: float = 0.0
    members: tuple[str, ...] = ()
    over_time: tuple[np.ndarray, ...] = ()


def cut(dataset: Dataset, discount: float, most: int, draws: int, rng: np.random.Generator) -> Log:
    """Cut a log into parts by time, and draw its episodes.

    Raises:
        DataError: fewer episodes than `FEWEST`.
    """
    spans = episodes(dataset.transitions)
    count = len(spans.starts)
    if count < FEWEST:
        hint = "a continuous log is cut into episodes by max_episode_steps"
        raise DataError(dataset.name, "episodes", count, f"at least {FEWEST} to compare with", hint)
    parts = int(np.clip(count // PER_PART, 2, PARTS))
    kept = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
    returns = episode_returns(dataset.transitions, discount)[kept]
    starts = np.asarray(dataset.transitions.observations[spans.starts[kept]])
    drawn = rng.integers(len(kept), size=(draws, len(kept)))
    counts = np.stack([np.bincount(row, minlength=len(kept)) for row in drawn])
    part = halves(count, parts)
    return Log(dataset, discount, part, kept, starts, returns, counts.astype(np.float64))


def mean_draws(log: Log, values: np.ndarray) -> np.ndarray:
    """Means over the drawn episodes of `[..., S]` values, `[..., D]`."""
    return values @ log.counts.T / log.counts.sum(1)


def draws_of(log: Log, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws of the median over drawn members of the mean over drawn starts, `[M, S]` to `[D]`."""
    by_member = mean_draws(log, values)
    members = rng.integers(len(values), size=(by_member.shape[1], len(values)))
    return np.median(by_member[members, np.arange(by_member.shape[1])[:, None]], 1)


def settled(values: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    """Members `[M]` whose mean over the starts is finite and possible."""
    mean = values.mean(1)
    return np.isfinite(mean) & (bounds[0] <= mean) & (mean <= bounds[1])


def by_models(log: Log, models: Models, clones: Entry, entries: list[Entry], seed: int) -> Estimate:
    """Played in world models; see `models`."""
    rng, key = np.random.default_rng(seed), as_key(seed, "seed")
    clone_key, key = jax.random.split(key)
    rewards = log.dataset.transitions.rewards
    bounds = possible(rewards, log.discount, steps_of(log.discount, models.horizon))
    inside = [log.of_part(number) for number in range(len(clones.names))]
    unseen = 1 - np.arange(len(inside)) % 2
    own = [log.starts[rows] for rows in inside]
    played = play_all(models, clones, own, clone_key, log.discount, half=unseen)
    off = np.array([_middle(one, bounds) for one in played])
    off -= np.array([log.returns[rows].mean() for rows in inside])
    draws, why, members, beyond, over_time = [], [], [], [], []
    for number, entry in enumerate(entries):
        starts = [log.starts] * len(entry.names)
        entry_key = jax.random.fold_in(key, number)
        for one in play_all(models, entry, starts, entry_key, log.discount):
            good = settled(one.values, bounds)
            members.append(f"{good.sum()}/{len(good)}")
            beyond.append(np.nanmean(one.beyond) if np.isfinite(one.beyond).any() else np.nan)
            over_time.append(one.beyond)
            enough = good.sum() * 2 > len(good)
            away = f"{(~good).sum()} of {len(good)} members ran away or gave no number"
            why.append("" if enough else away)
            nothing = np.full(len(log.counts), np.nan)
            draws.append(draws_of(log, one.values[good], rng) if enough else nothing)
    found, data = np.stack(draws), mean_draws(log, log.returns)
    typical = float(np.nanmean([np.nanmean(one.beyond) for one in played]))
    value, shares = np.median(found, 1), np.asarray(beyond)
    counted: Any = (tuple(members), tuple(over_time))
    return Estimate(
        found, value, data, float(log.returns.mean()), off, why, shares, typical, *counted
    )


def _middle(played: Played, bounds: tuple[float, float]) -> float:
    good = settled(played.values, bounds)
    return float(np.median(played.values[good].mean(1))) if good.any() else np.nan


class Critics(NamedTuple):
    """Fitted Q evaluations of clones and policies, or why a training has none."""

    clones: Evaluated
    of: list[Evaluated | str]


def fit_critics(
    log: Log,
    clones: Entry,
    entries: list[Entry],
    config: FqeConfig,
    seed: int,
    context: RunContext | None,
) -> Critics:
    """Evaluate all policies, those of one training side by side.

    Checkpoints are those of the clones alone: a policy may be another when a run is resumed.
    """

    def fit(entry: Entry, **how: Any) -> Evaluated:
        given = entry.agent, entry.actors, log.dataset, config
        return evaluated(*given, name=entry.name, seed=seed, **how)

    def tried(entry: Entry) -> Evaluated | str:
        if entry.has_memory:
            return "the policy has a memory"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a seed that is left out: its row says so
            try:
                return fit(entry, on_divergence="drop")
            except DivergenceError:
                return NOT_FINITE

    return Critics(fit(clones, context=context), [tried(entry) for entry in entries])


def by_critics(log: Log, critics: Critics, entries: list[Entry], seed: int) -> Estimate:
    """Fitted Q evaluation, whose values extend beyond a time limit: so does the data's, by the
    clones' critics, `sum_t gamma^t r_t + gamma^T V(s_T)` of an episode that was cut."""
    rng, rows = np.random.default_rng(seed), log.dataset.transitions
    spans = episodes(rows)
    last = np.asarray(rows.next_observations[spans.ends[log.kept] - 1])
    far = log.discount ** spans.lengths[log.kept] * ~spans.terminated[log.kept]
    each = log.part[log.kept], slice(None), np.arange(len(log.kept))
    begun, after = (critics.clones.at(x)[each].mean(1) for x in (log.starts, last))
    earned = log.returns + far * after
    parts = [log.of_part(number) for number in range(len(critics.clones.clipped))]
    off = np.array([(begun - earned)[inside].mean() for inside in parts])
    draws, why, members = [], [], []
    for entry, one in zip(entries, critics.of, strict=True):
        nothing = np.full((len(entry.names), 1, len(log.starts)), np.nan)
        values = nothing if isinstance(one, str) else one.at(log.starts)
        for number, own in enumerate(values):
            reason = one if isinstance(one, str) else ""
            if not reason and not np.isfinite(own).all():
                reason = NOT_FINITE
            elif not isinstance(one, str) and one.clipped[number] > DIVERGED:
                reason = f"critics diverged ({one.clipped[number]:.0%} of their targets clipped)"
            why.append(reason)
            members.append("" if reason else f"{len(own)}/{len(own)}")
            unknown = np.full(len(log.counts), np.nan)
            draws.append(unknown if reason else draws_of(log, own, rng))
    found, data = np.stack(draws), mean_draws(log, earned)
    beyond, middle = np.full(len(found), np.nan), np.median(found, 1)
    mean = float(earned.mean())
    return Estimate(found, middle, data, mean, off, why, beyond, members=tuple(members))
