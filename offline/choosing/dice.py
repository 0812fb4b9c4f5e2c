"""A policy's value from how often it visits what the log holds, over how often the log does.

DualDICE (Nachum et al. 2019, arXiv:1906.04733) in the span of fixed features, where its saddle
point is a linear system: the corrections `zeta = d_pi / d_log` balance the flow of every feature f,

    E_log[zeta(s, a) (f(s, a) - gamma (1 - d) f(s', a'))] = (1 - gamma) E[f(s_0, a_0)],
    J = E_log[zeta r] / (1 - gamma),

with actions `a'`, `a_0` of the policy. It is the value of LSTD on the same features (Uehara et al.
2020, arXiv:1910.12809). Neither a density of the policy nor a clone of the log is needed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.draws import as_key

from .estimates import Log
from .policies import Entry

FEATURES = 256  # random Fourier features (Rahimi & Recht 2007), besides a constant
ROWS = 50_000  # of the log, at most, evenly spaced
DRAWS = 4  # actions of the policy in a state
RIDGE = 1e-3  # of the mean square of a feature


def corrections(
    seen: np.ndarray, after: np.ndarray, begun: np.ndarray, discount: float, ridge: float = RIDGE
) -> np.ndarray:
    """`zeta`, `[N]`, of rows with features `seen` `[N, F]`.

    Args:
        seen: features of the logged states and actions.
        after: `[N, F]`, of the next states under the policy, zero where an episode terminated.
        begun: `[B, F]`, of the start states under the policy.
        discount: gamma.
        ridge: added to the system, over the mean square of a feature.
    """
    flow = (seen - discount * after).T @ seen / len(seen)
    flow += ridge * float(np.square(seen).mean()) * np.eye(len(flow))
    return seen @ np.linalg.solve(flow, (1.0 - discount) * begun.mean(0))


def by_corrections(log: Log, entries: list[Entry], seed: int) -> np.ndarray:
    """Values `[P]`; NaN of policies with a memory, and where a policy's actions are not finite."""
    rows = log.dataset.with_successors
    every = np.linspace(0, len(rows.rewards) - 1, min(ROWS, len(rows.rewards))).astype(int)
    states, actions, following = (
        np.asarray(x, np.float64)[every]
        for x in (rows.observations, rows.actions, rows.next_observations)
    )
    middle, scale = states.mean(0), np.where(states.std(0) > 0, states.std(0), 1.0)
    wide = states.shape[1] + actions.shape[1]
    rng = np.random.default_rng(seed)
    # Bandwidth: the root mean square distance of two rows, so that most of them see each other.
    waves = rng.normal(size=(wide, FEATURES)) / np.sqrt(2.0 * wide)
    phases = rng.uniform(0.0, 2.0 * np.pi, FEATURES)

    def features(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        at = np.concatenate([(states - middle) / scale, actions], 1) @ waves + phases
        return np.concatenate([np.ones((len(at), 1)), np.sqrt(2.0) * np.cos(at)], 1)

    seen, going = features(states, actions), ~np.asarray(rows.terminations, bool)[every, None]
    rewards, values = np.asarray(rows.rewards, np.float64)[every], []
    for entry in entries:
        act = jax.jit(entry.agent.policy)
        for number in range(len(entry.names)):
            if entry.has_memory:
                values.append(np.nan)
                continue
            actor = jax.tree.map(lambda x, k=number: x[k], entry.actors)

            def under(states: np.ndarray, act=act, actor=actor) -> np.ndarray:
                keys, shown = jax.random.split(as_key(seed, "seed"), DRAWS), jnp.asarray(states)
                drawn = [np.asarray(act(actor, key, shown, ())[0], np.float64) for key in keys]
                return np.mean([features(states, a) for a in drawn], 0)

            zeta = corrections(seen, under(following) * going, under(log.starts), log.discount)
            values.append(float((zeta * rewards).mean()) / (1.0 - log.discount))
    return np.asarray(values)
