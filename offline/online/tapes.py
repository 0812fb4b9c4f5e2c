"""Datasets of D4RL's recipe out of one SAC training, as tapes (Fu et al. 2020, appendix A).

===============  ==================================================================================
kind             rows
===============  ==================================================================================
`medium`         the first policy whose sampled return reaches a third of D4RL's expert return
`medium-replay`  whole episodes spread evenly over the replay buffer until that policy, or until it
                 holds enough rows, if that is later
`medium-expert`  half of `medium`'s policy, half of the best policy of the training
`expert`         the best policy of the training
`random`         uniform actions
===============  ==================================================================================

Policies sample their actions, rounded to float16 before the simulator is given them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ..collect import collect, collect_with_states, random_policy
from ..data.references import reference_scores
from ..data.transitions import Transitions, episode_returns, episodes
from ..environments.base import Environment
from ..environments.terminations import family
from ..evaluation import Policy
from ..tapes import KINDS
from ..tapes.replay import replay
from ..tapes.tape import EVERY, Tape
from .learner import rounded
from .train import Online

SHARE = 1 / 3  # of D4RL's expert return: where a policy is `medium`
CHECKED = 10  # episodes that decide whether a policy is there


class Rows(NamedTuple):
    """Whole episodes with the simulator's state before each row.

    Attributes:
        actions: `[N, A]`.
        states: `[N, Q + V]` float64.
        lengths: `[E]` rows of each episode; the last may be cut.
    """

    actions: np.ndarray
    states: np.ndarray
    lengths: np.ndarray


def make_tape(kind: str, env: Environment, training: Online | None, rows: int, seed: int) -> Tape:
    """The tape of one kind of dataset."""
    base = jax.random.key(seed)
    key = jax.random.fold_in(base, KINDS.index(kind))
    if training is None or kind == "random":
        parts, facts = [play(env, random_policy(env.action_size), (), key, rows)], {}
    else:
        parts, facts = _trained(kind, env, training, rows, base, key)
        facts["training_seed"] = seed  # the command trains and plays with one seed
    whole = Rows(
        np.concatenate([part.actions for part in parts]),
        np.concatenate([part.states for part in parts]),
        np.concatenate([part.lengths for part in parts]),
    )
    return tape_of(env, whole, {"kind": kind, "seed": seed, **facts})


def _trained(
    kind: str, env: Environment, training: Online, rows: int, base: jax.Array, key: jax.Array
) -> tuple[list[Rows], dict[str, Any]]:
    """Parts of a dataset whose policies were trained."""
    play_key, best_key = jax.random.split(key)
    # The same for every kind, so that they agree on which policy is medium.
    medium_key = jax.random.fold_in(base, len(KINDS))
    steps, returns = training.curve()
    best = int(returns[:, 0].argmax())
    policy = training.agent.policy
    facts: dict[str, Any] = {"training_steps": int(steps[-1])}

    def played(look: int, key: jax.Array, count: int) -> Rows:
        return play(env, policy, training.actor(0, look), key, count)

    if kind == "expert":
        return [played(best, best_key, rows)], {**facts, "policy_steps": [int(steps[best])]}
    medium = first_medium(env, training, medium_key)
    facts["policy_steps"] = [int(steps[medium])]
    if kind == "medium":
        return [played(medium, play_key, rows)], facts
    if kind == "medium-expert":
        facts["policy_steps"].append(int(steps[best]))
        halves = (rows - rows // 2, rows // 2)
        return [played(medium, play_key, halves[0]), played(best, best_key, halves[1])], facts
    until = max(int(steps[medium]), rows)
    facts["replay_steps"] = until
    return [spread(buffer(env, training, until), rows)], facts


def first_medium(env: Environment, training: Online, key: jax.Array) -> int:
    """The first evaluation whose policy, sampling its actions, earns a third of D4RL's expert."""
    references = reference_scores(f"{family(env.name)}-medium-v2")
    assert references is not None  # of every family with a replay
    wanted = SHARE * references[1]
    returns = training.curve()[1][:, 0]
    # Sampled actions earn less than the mean ones that evaluations play.
    for look in np.flatnonzero(returns >= wanted).tolist():
        rows = collect(
            env,
            _rounding(training.agent.policy),
            training.actor(0, look),
            jax.random.fold_in(key, look),
            episodes=CHECKED,
        )
        if episode_returns(rows).mean() >= wanted:
            return look
    raise ValueError(f"best return: found {returns.max():.0f}, expected {wanted:.0f} or more")


def play(env: Environment, policy: Policy, params: Any, key: jax.Array, rows: int) -> Rows:
    """So many rows of a policy with rounded actions; the last episode is cut."""
    found, infos = collect_with_states(env, _rounding(policy), params, key, rows)
    return Rows(
        found.actions,
        np.concatenate([infos["qpos"], infos["qvel"]], 1),
        episodes(found).lengths,
    )


_WRAPPED: dict[Policy, Policy] = {}


def _rounding(policy: Policy) -> Policy:
    """The same policy with actions as a tape stores them; one function per policy, so that
    nothing is compiled twice."""

    def act(params: Any, key: jax.Array, observation: jax.Array, memory: Any) -> tuple:
        action, memory = policy(params, key, observation, memory)
        return rounded(action), memory

    return _WRAPPED.setdefault(policy, act)


def buffer(env: Environment, training: Online, steps: int) -> list[Rows]:
    """Episodes of the replay buffer's first `steps` rows, each by itself, in order of time."""
    kept = jax.tree.map(lambda leaf: np.asarray(leaf[0]), training.trained.state.replay)
    count = min(int(kept.size), steps)
    copies = training.config.environments
    transitions, states = kept.rows
    found = []
    for copy in range(copies):
        at = np.arange(copy, count, copies)
        rows = Transitions(*(column[at] for column in transitions))
        parts = episodes(rows)
        coordinates = np.ascontiguousarray(states[at]).view(np.float64)
        for start, end in zip(parts.starts.tolist(), parts.ends.tolist(), strict=True):
            piece = slice(start, end)
            lengths = np.array([end - start])
            found.append((at[start], Rows(rows.actions[piece], coordinates[piece], lengths)))
    return [episode for _, episode in sorted(found, key=lambda pair: pair[0])]


def spread(parts: list[Rows], rows: int) -> Rows:
    """Whole episodes spread evenly over all, `rows` of them in all; the last one is cut.

    An episode is taken when the rows taken so far fall behind their share of the rows so far.
    """
    total = sum(len(part.actions) for part in parts)
    taken: list[Rows] = []
    seen = have = 0
    for part in parts:
        seen += len(part.actions)
        # Half an episode ahead, so that the last ones are not left out.
        if have + len(part.actions) / 2 <= seen * rows / total and have < rows:
            taken.append(part)
            have += len(part.actions)
    left = [part for part in parts if not any(part is other for other in taken)]
    while have < rows and left:
        taken.append(left.pop())
        have += len(taken[-1].actions)
    actions = np.concatenate([part.actions for part in taken])[:rows]
    states = np.concatenate([part.states for part in taken])[:rows]
    lengths = np.concatenate([part.lengths for part in taken])
    ends = np.minimum(np.cumsum(lengths), len(actions))
    lengths = np.diff(ends, prepend=0)
    return Rows(actions, states, lengths[lengths > 0])


def tape_of(env: Environment, rows: Rows, facts: Mapping[str, Any]) -> Tape:
    """A tape of rows, with the returns of its replay here."""
    starts = np.cumsum(rows.lengths) - rows.lengths
    within = np.arange(len(rows.actions)) - np.repeat(starts, rows.lengths)
    tape = Tape(
        env.name,
        rows.actions.astype(np.float16),
        rows.lengths.astype(np.int32),
        rows.states[within % EVERY == 0],
        np.zeros(len(rows.lengths)),
        {**facts, "versions": env.version},
    )
    replayed = replay(tape)
    # How far the replay, which begins without the solver's warm start, is from what was played.
    gap = np.abs(np.concatenate([replayed.qpos, replayed.qvel], 1) - rows.states).max()
    returns = episode_returns(replayed.rows)
    facts = {**tape.facts, "largest_state_difference": float(gap), "rows": len(rows.actions)}
    return tape._replace(returns=returns, facts=facts)
