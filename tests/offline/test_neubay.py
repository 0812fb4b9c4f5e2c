"""NEUBAY's loop against a plain reconstruction, in dynamics whose answers are known."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts import loop
from jaxrl_rollouts.errors import ConfigError, Interrupted
from jaxrl_rollouts.experiment import RunContext
from jaxrl_rollouts.interrupts import StopFlag
from jaxrl_rollouts.offline import tapes
from jaxrl_rollouts.offline.data import Transitions
from jaxrl_rollouts.offline.histories import log_histories
from jaxrl_rollouts.offline.memory import MemoryConfig
from jaxrl_rollouts.offline.neubay import Collected, Neubay, NeubayData, make_neubay
from jaxrl_rollouts.offline.neubay_config import NeubayConfig, Sizes, ring_bytes, ring_entries
from jaxrl_rollouts.offline.recurrent_sac import RecurrentSacConfig
from jaxrl_rollouts.offline.world_model import Dynamics, World
from jaxrl_rollouts.rollout import Model, outcome
from jaxrl_rollouts.run_folder import RunFolder
from jaxrl_rollouts.scaler import identity_scaler

S, A, LIMIT, MEMBERS, K = 2, 1, 7, 3, 24
LENGTHS = (4, 2, 5)  # the first ends by itself, the second is cut, the third stops in the middle
CONFIG = NeubayConfig(
    agent=RecurrentSacConfig(
        memory=MemoryConfig("lru", width=8, state=4, layers=1), head=(8,), critics=3, steps=12,
        discount=0.9, memory_rate=1e-3, head_rate=1e-3, real_weight=0.3,
    ),
    rollouts=K, updates_per_token=0.05, updates_per_iteration=2, tape=32, capacity=2000,
    early_exit=2,
)  # fmt: skip


def dataset() -> Transitions:
    """State `[episode, time]`, action `(10 * episode + time) / 50`, reward a tenth of it."""
    rows = [(e, t, t == n - 1) for e, n in enumerate(LENGTHS) for t in range(n)]
    e, t, last = map(np.array, zip(*rows, strict=True))
    s = np.stack([e, t], 1).astype(np.float32)
    a = ((10.0 * e + t) / 50).astype(np.float32)
    following = s + np.array([0, 1], np.float32)
    return Transitions(s, a[:, None], a / 10, following, last & (e == 0), last & (e == 1))


def step(world: World, key: Any, state: jax.Array, action: jax.Array, member: jax.Array) -> tuple:
    """Time goes on; reward tells action and member; episode 1 ends at time 4 of itself.

    The members disagree by `time - 4.5 + episode`, or nothing: beyond 0 from time 5 on in episode
    0, from 4 on in 1, from 3 on in 2.
    """
    following = state + jnp.array([0.0, 1.0])
    reward = action[:, 0] + 10.0 * (1.0 + member) + world.elites[0]
    over = (state[:, 0] == 1) & (following[:, 1] == 4)
    lost = jnp.maximum(state[:, 1] - 4.5 + state[:, 0], 0.0)
    return following, outcome(len(state), reward=reward, terminated=over, uncertainty=lost)


DYNAMICS = Dynamics(Model(step), lambda *_: None, MEMBERS)  # type: ignore[arg-type]
SIZES = Sizes(S, A, LIMIT, max(LENGTHS))


def data(limit: float = 0.0, penalty: float = 0.0, offsets: tuple = (0.0,)) -> NeubayData:
    """One world per offset; all their rewards are shifted by it."""
    count = len(offsets)
    scaler = identity_scaler(S + A)
    worlds = World(jnp.asarray(offsets)[:, None], scaler, scaler, None, jnp.full(count, limit))
    tiled = worlds._replace(
        **{n: jax.tree.map(lambda x: jnp.stack([x] * count), scaler) for n in ("inputs", "targets")}
    )
    return NeubayData(log_histories(dataset(), LIMIT), tiled, jnp.full(count, penalty))


@functools.cache
def made(**changes: Any) -> tuple[Neubay, Any]:
    """The agent, and an actor whose actions hardly vary and depend on what was before."""
    neubay = make_neubay(replace(CONFIG, **changes), DYNAMICS, SIZES)
    actor = jax.jit(neubay.init)(jax.random.key(0), jnp.int32(0)).agent.actor
    head = dict(actor.head)
    head["Dense_1"] = jax.tree.map(lambda x: 3.0 * x, head["Dense_1"])
    head["Dense_2"] = jax.tree.map(lambda x: x - 100.0, head["Dense_2"])
    return neubay, actor._replace(head=head)


compiled = functools.cache(jax.jit)


@functools.cache
def collected(limit: float = 0.0, penalty: float = 0.0, **changes: Any) -> Collected:
    neubay, actor = made(**changes)
    found = compiled(neubay.collect)(actor, jax.random.key(5), data(limit, penalty), jnp.int32(0))
    return jax.tree.map(np.asarray, found)


def rebuild(row: int, found: Collected, limit: float, penalty: float = 0.0) -> dict[str, Any]:
    """One stored episode in plain Python, given where it began and what was done."""
    tokens = jax.tree.map(lambda x: x[row], found.tokens)
    e, done = int(tokens.observations[0, 0]), int(tokens.real.sum())
    out: dict[str, list] = {name: [] for name in tokens._fields}
    state, acted, paid, time = [float(e), 0.0], 0.0, 0.0, 0
    imagines = done < LENGTHS[e]
    while True:
        real, over, cut = time < done, False, False
        out["observations"].append([*state, acted, paid])
        if not real and (not imagines or (out["terminations"] and out["terminations"][-1])):
            break
        if not real and out["truncations"] and out["truncations"][-1]:
            break
        acted = (10.0 * e + time) / 50 if real else float(tokens.actions[time, 0])
        lost = 0.0 if real else max(time - 4.5 + e, 0.0)
        if real:
            paid = acted / 10
            over, cut = (e == 0, e != 0) if time + 1 == LENGTHS[e] else (False, False)
        else:
            paid = acted + 10.0 * (1 + row % MEMBERS)
            over = e == 1 and time + 1 == 4
            cut = not over and (lost > limit or time + 1 == LIMIT)
        state, time = [float(e), state[1] + 1.0], time + 1
        values = (acted, paid - penalty * lost, over, cut, real)
        for name, value in zip(tokens._fields[1:], values, strict=True):
            out[name].append(value)
    for name in tokens._fields[1:]:  # the last look: nothing was done there
        out[name].append(0.0 if name in ("actions", "rewards") else False)
    return out


@pytest.mark.parametrize(("limit", "penalty"), [(0.0, 0.0), (np.inf, 0.0), (1.0, 2.0)])
def test_what_is_stored(limit: float, penalty: float) -> None:
    """Prefix, imagined rest, the violating step kept, endings as they are, and a last look."""
    found = collected(limit, penalty)
    assert found.tokens.rewards.shape == (K, LIMIT + 1)
    kinds = set()
    for row in range(K):
        n, want = int(found.lengths[row]), rebuild(row, found, limit, penalty)
        assert n == len(want["rewards"])
        for name, values in want.items():
            got = getattr(found.tokens, name)[row]
            expected = np.array(values, np.float32).reshape(n, *got.shape[1:])
            np.testing.assert_allclose(got[:n], expected, rtol=1e-5, atol=1e-6, err_msg=name)
            assert not got[n:].any(), "nothing lies behind the last look"
        kinds.add((want["real"][-2], want["terminations"][-2], want["truncations"][-2]))
    # Imagined endings of both kinds, and histories from whose end nothing was imagined.
    assert {(False, True, False), (False, False, True), (True, False, True)} <= kinds
    assert not (found.tokens.terminations & found.tokens.truncations).any()


def test_the_violating_step_is_kept_and_only_it() -> None:
    found = collected(0.0)
    state, real = found.tokens.observations[..., :2], found.tokens.real
    lost = np.maximum(state[..., 1] - 4.5 + state[..., 0], 0) > 0
    for row in range(K):
        n = int(found.lengths[row])
        beyond = np.flatnonzero(lost[row, : n - 1] & ~real[row, : n - 1])
        assert len(beyond) == 0 or list(beyond) == [n - 2]
        if len(beyond) and not found.tokens.terminations[row, n - 2]:
            assert found.tokens.truncations[row, n - 2]


def test_a_penalty_changes_imagined_rewards_only() -> None:
    plain, strict = collected(1.0, 0.0), collected(1.0, 2.0)
    for name in plain.tokens._fields:
        if name != "rewards":
            np.testing.assert_array_equal(
                getattr(plain.tokens, name), getattr(strict.tokens, name), err_msg=name
            )
    state = plain.tokens.observations
    imagined = ~plain.tokens.real & (np.arange(LIMIT + 1) < plain.lengths[:, None] - 1)
    lost = np.where(imagined, np.maximum(state[..., 1] - 4.5 + state[..., 0], 0), 0)
    gap = plain.tokens.rewards - strict.tokens.rewards
    np.testing.assert_allclose(gap, 2.0 * lost, atol=1e-5)
    assert (gap[imagined] > 0).any()


def test_looks_say_how_long_and_why() -> None:
    found = collected(0.0)
    real, n = found.tokens.real.sum(1), found.lengths
    e = found.tokens.observations[:, 0, 0].astype(int)
    going = real < np.array(LENGTHS)[e]
    steps = (n - 1 - real)[going]
    looks = found.looks
    quartiles = (looks.horizon_low, looks.horizon_median, looks.horizon_high)
    np.testing.assert_allclose(quartiles, np.quantile(steps, [0.25, 0.5, 0.75]), rtol=1e-6)
    assert looks.horizon_longest == steps.max() and looks.tokens == n.sum()
    last = found.tokens.terminations[np.arange(K), n - 2][going]
    np.testing.assert_allclose(looks.ended_termination, last.mean(), rtol=1e-6)
    total = looks.ended_threshold + looks.ended_termination + looks.ended_limit
    np.testing.assert_allclose(total, 1.0, rtol=1e-6)
    assert looks.ended_threshold > 0 and collected(np.inf).looks.ended_threshold == 0
    np.testing.assert_allclose(looks.imagined_share, steps.sum() / n.sum(), rtol=1e-6)


def test_the_actor_goes_on_with_what_it_saw_before() -> None:
    """Actions are those of the whole tape seen from its beginning, not of a fresh memory."""
    found, (neubay, actor) = collected(np.inf), made()
    starts = jnp.arange(LIMIT + 1) == 0
    heads = jax.jit(neubay.agent.networks.heads)
    forgot = 0.0
    for row in range(K):
        n, real = int(found.lengths[row]), int(found.tokens.real[row].sum())
        seen, acted = found.tokens.observations[row], found.tokens.actions[row, real : n - 1]
        mean, _ = heads(actor, seen, starts)
        np.testing.assert_allclose(acted, np.tanh(mean[real : n - 1]), atol=0.03)
        if real > 1 and len(acted):
            fresh, _ = heads(actor, np.roll(seen, -real, 0), starts)
            forgot = max(forgot, float(np.abs(acted[0] - np.tanh(fresh[0])).max()))
    assert forgot > 0.06, "the check above would have passed for an actor without a memory"


def test_a_fixed_horizon_and_the_markov_agent() -> None:
    two = collected(np.inf, horizon=2)
    assert two.looks.horizon_longest == 2 and two.tokens.rewards.shape == (K, 8)
    memory = MemoryConfig("none", width=8)
    blind = collected(np.inf, agent=replace(CONFIG.agent, memory=memory))
    assert blind.tokens.observations.shape[-1] == S, "without a memory it sees the state only"
    whole = collected(np.inf)
    np.testing.assert_array_equal(blind.tokens.observations, whole.tokens.observations[..., :S])
    np.testing.assert_array_equal(blind.lengths, whole.lengths)


def states(neubay: Neubay, seeds: int, worlds: int = 1) -> Any:
    keys = jax.random.split(jax.random.key(3), seeds)
    return jax.jit(jax.vmap(neubay.init))(keys, jnp.arange(seeds) % worlds)


def leaves(state: Any) -> list[np.ndarray]:
    return [
        np.asarray(x) for x in jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))
    ]


def test_cadence_is_exact_up_to_what_is_owed() -> None:
    neubay, _ = made()
    programs = loop._compiled(neubay.update, 1)._programs
    before = len(programs)
    trained = loop.train(
        neubay.update, states(neubay, 2), data(0.0), iterations=CONFIG.iterations, stage="agent"
    )
    owed = trained.history.curve("owed")[1]
    used, tokens = (trained.history.curve(n)[1] for n in ("ring_tokens", "tokens"))
    came = np.diff(np.concatenate([np.zeros((1, 2)), used]), axis=0)
    due = np.concatenate([np.ones((1, 2), bool), owed[:-1] < 2])
    np.testing.assert_array_equal(came, np.where(due, tokens, 0))
    assert due.any(0).all() and not due.all(), "some iterations live on what was there"
    taken = 2.0 * np.arange(1, CONFIG.iterations + 1)[:, None]
    np.testing.assert_allclose(owed, 0.05 * np.cumsum(came, 0) - taken, atol=1e-4)
    for name in ("horizon_median", "q_real", "q_imagined", "entropy", "alpha", "ended_limit"):
        assert np.isfinite(trained.history.curve(name)[1]).all()
    assert len(programs) - before <= 1, "later iterations compile nothing"
    other = make_neubay(replace(CONFIG, level=0.9, penalty=1.0), DYNAMICS, SIZES)
    assert other.update is neubay.update, "arms of an ablation share their program"


def test_a_collection_that_is_not_due_is_not_made() -> None:
    """XLA takes out of a loop what depends on nothing in it; then it would always be computed."""
    neubay, _ = made()
    update = jax.jit(jax.vmap(neubay.update, (0, None)))
    text = update.lower(states(neubay, 2), data(0.0)).compile().as_text()
    assert text is not None
    loops = [line for line in text.splitlines() if " while(" in line and "op_name" in line]
    rolling = [line for line in loops if "/while/body/while" in line.split("op_name")[1]]
    assert rolling, "a collection is a loop within a loop"
    entry = text[text.index("\nENTRY") :]
    assert not [line for line in rolling if line in entry]


def test_two_seeds_are_two_runs_each_in_its_own_world() -> None:
    neubay, _ = made()
    both = loop.train(
        neubay.update, states(neubay, 2, 2), data(0.0, offsets=(0.0, 5.0)), iterations=2,
        stage="agent",
    )  # fmt: skip
    for seed, offset in enumerate((0.0, 5.0)):
        alone = jax.tree.map(lambda x, s=seed: x[s : s + 1], states(neubay, 2))
        one = loop.train(
            neubay.update, alone, data(0.0, offsets=(offset,)), iterations=2, stage="agent"
        )
        mine = jax.tree.map(lambda x, s=seed: x[s], both.state)
        other = jax.tree.map(lambda x: x[0], one.state)
        np.testing.assert_array_equal(mine.ring.lengths, other.ring.lengths)
        for name in ("agent", "ring", "owed", "looks"):
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5),
                getattr(mine, name), getattr(other, name),
            )  # fmt: skip


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    neubay, _ = made()
    settings: dict[str, Any] = {"iterations": 4, "stage": "agent", "save_every_seconds": 0.0}
    whole = loop.train(neubay.update, states(neubay, 2), data(0.0), **settings)
    stop = StopFlag()
    context = RunContext(RunFolder(tmp_path, "neubay", "", {}, "", {}), progress=False, stop=stop)

    def ask(state: Any, iteration: int) -> dict[str, Any]:
        stop.requested = iteration == 2
        return {}

    with pytest.raises(Interrupted):
        loop.train(
            neubay.update, states(neubay, 2), data(0.0), evaluate=ask, evaluate_every=1,
            context=context, **settings,
        )  # fmt: skip
    stop.requested = False
    again = loop.train(neubay.update, states(neubay, 2), data(0.0), context=context, **settings)
    for a, b in zip(leaves(whole.state), leaves(again.state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_real_tokens_come_as_prefixes_only() -> None:
    neubay, _ = made()
    trained = loop.train(neubay.update, states(neubay, 2), data(0.0), iterations=1, stage="agent")
    state = jax.tree.map(lambda x: x[0], trained.state)
    tape = tapes.sample(state.ring, jax.random.key(0), 200)
    real, starts = np.asarray(tape.tokens.real), np.asarray(tape.starts)
    # Once an episode has left the data it never comes back to them.
    comes_back = ~real[:-1] & real[1:] & ~starts[1:]
    assert real.any() and (~real).any() and not comes_back.any()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"horizon": 0}, "horizon: found 0"),
        ({"rollouts": 0}, "rollouts"),
        ({"level": 1.5}, "level: found 1.5"),
        ({"penalty": -1.0}, "penalty"),
        ({"updates_per_token": 0.0}, "updates_per_token"),
        ({"updates_per_iteration": 5}, "updates_per_iteration: found 5, expected a divisor"),
        ({"early_exit": 0}, "early_exit"),
        ({"capacity": 100}, r"capacity: found 100, expected at least 192 tokens"),
        ({"capacity": 300, "tape": 301}, "at least one tape of 301 tokens"),
        ({"tape": 1}, "tape: found 1"),
        ({"tape": 7}, "tape: found 7, expected at least the 8 tokens of an episode"),
    ],
)
def test_settings_are_checked(wrong: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        neubay = make_neubay(replace(CONFIG, **wrong), DYNAMICS, SIZES)
        neubay.init(jax.random.key(0), jnp.int32(0))


def test_dynamics_must_measure_disagreement() -> None:
    with pytest.raises(ConfigError, match="no measure of disagreement"):
        make_neubay(CONFIG, DYNAMICS._replace(measured=False), SIZES)


def test_the_ring_takes_what_is_said() -> None:
    ring = jax.tree.map(lambda x: x[0], states(made()[0], 1)).ring
    assert sum(x.nbytes for x in jax.tree.leaves(ring)) == ring_bytes(CONFIG, SIZES)
    assert ring.begins.shape == (ring_entries(CONFIG),)
