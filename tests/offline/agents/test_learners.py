"""What every learner has to do alike: one table of all of them, and the same questions to each."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers_learners import HARD, KNOWN, METHODS, ROLLOUTS, TABLE, WORLD, A, B, S, case

from jaxrl_rollouts.errors import DivergenceError
from jaxrl_rollouts.loop import Trained, train_loop
from jaxrl_rollouts.offline.methods.model_based import Imagination, bind
from jaxrl_rollouts.offline.neubay.learner import NeubayData
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.trees import stack

KEYS = jax.random.split(jax.random.key(3), 2)
CLOSE = {"rtol": 2e-3, "atol": 2e-4}
# The same learners with other parts, which have tests of their own.
VARIANTS = ("base, td3", "sac, gated flow", "ravl, plain flow", "neubay, markov")
# Those whose every part another one has (RAVL the diversity, FQL the flow, MOPO the rollouts), and
# two whose trainings `test_bandit_dqn` and `test_job` look at.
VARIANTS += ("edac", "bc, flow", "base", "recurrent dqn", "planner")
every_learner = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in VARIANTS else n for n in TABLE]
)


def run(name: str, keys: jax.Array = KEYS, data: Any = None, **options: Any) -> Trained:
    learner = case(name).learner
    data = case(name).data if data is None else data
    settings: dict[str, Any] = {"iterations": 3, "stage": "agent", **options}
    return train_loop(learner.update, learner.init, keys, data, **settings)


@functools.cache
def both(name: str) -> Trained:
    """Two seeds, three iterations."""
    return run(name)


@functools.cache
def first(name: str) -> Trained:
    """The first of the seeds alone, one iteration."""
    return run(name, KEYS[:1], iterations=1)


def bits(tree: Any) -> list[np.ndarray]:
    """Every leaf, keys as their numbers."""

    def of(leaf: Any) -> np.ndarray:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    return [of(leaf) for leaf in jax.tree.leaves(tree)]


def assert_close(found: Any, want: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(want)
    for a, b in zip(bits(found), bits(want), strict=True):
        np.testing.assert_allclose(a, b, **CLOSE)


def seed(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], tree)


@contextmanager
def compilations() -> Iterator[list[str]]:
    """Every tracing, lowering and compiling within, as jax tells of it."""
    events: list[str] = []

    def listen(event: str, seconds: float, **more: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_compilations_are_seen() -> None:
    with compilations() as events:
        jax.jit(lambda x: x + 1)(jnp.zeros(3))
    assert events


@every_learner
def test_update_keeps_shapes_and_dtypes(name: str) -> None:
    learner, data = case(name).learner, case(name).data
    begin = jax.eval_shape(learner.init, KEYS[0], data)
    after, metrics = jax.eval_shape(learner.update, begin, data)
    assert jax.tree.structure(after) == jax.tree.structure(begin)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(begin), strict=True):
        assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
    assert all(x.shape == () and x.dtype == jnp.float32 for x in metrics.values())


@every_learner
def test_an_agent_acts_and_judges_with_its_memory(name: str) -> None:
    here = case(name)
    agent = here.learner.agent
    state = jax.eval_shape(here.learner.init, KEYS[0], here.data).agent
    memory, seen = agent.memory(B), jnp.ones((B, here.observations))
    assert all(leaf.shape[0] == B for leaf in jax.tree.leaves(memory))
    for act, actor in ((agent.policy, here.actor(state)), (agent.greedy, state.actor)):
        actions, after = jax.eval_shape(act, actor, KEYS[0], seen, memory)
        assert (actions.shape, actions.dtype) == (here.actions.shape, here.actions.dtype)
        assert jax.tree.structure(after) == jax.tree.structure(memory)
        for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(memory), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
    if agent.q is None:
        return
    values = jax.eval_shape(agent.q, state.critic, seen, here.actions)
    assert values.ndim == 2 and values.shape[1] == B and values.dtype == jnp.float32


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Step by step every operation is a program of its own: thousands, with their mappings."""
    yield
    jax.clear_caches()


@pytest.mark.slow
@every_learner
def test_compiled_and_step_by_step_are_the_same(name: str, forgotten: None) -> None:
    learner, data = case(name).learner, case(name).data
    with jax.disable_jit():
        state, metrics = learner.update(learner.init(KEYS[0], data), data)
    assert_close(seed(first(name).state, 0), state)
    for metric, value in metrics.items():
        np.testing.assert_allclose(first(name).history.last(metric)[0], value, **CLOSE)


@every_learner
def test_a_seed_knows_neither_its_place_nor_its_neighbour(name: str) -> None:
    """To the last bit, in the program that is compiled already."""
    for keys, i, place in ((KEYS[::-1], 0, 1), (KEYS[jnp.array([0, 0])], 0, 0)):
        other = run(name, keys)
        for a, b in zip(
            bits(seed(both(name).state, i)), bits(seed(other.state, place)), strict=True
        ):
            np.testing.assert_array_equal(a, b)


# One of each maker: the seeds' axis is added by `train`, the same for all agents of one maker. The
# others, compiled once more for the number of seeds, are slow tests; NEUBAY's are in `test_neubay`.
MAKERS = ("td3_bc", "ravl", "pgd")


@pytest.mark.parametrize(
    "name",
    [name if name in MAKERS else pytest.param(name, marks=pytest.mark.slow) for name in TABLE],
)
def test_two_seeds_together_are_two_runs_alone(name: str) -> None:
    for i in range(2):
        alone = run(name, KEYS[i : i + 1])
        assert_close(seed(both(name).state, i), seed(alone.state, 0))
        for metric in alone.history.records[-1].metrics:
            found, want = (t.history.curve(metric)[1] for t in (both(name), alone))
            np.testing.assert_allclose(found[:, i], want[:, 0], **CLOSE)


@every_learner
def test_a_second_training_compiles_nothing(name: str) -> None:
    first_time = run(name)
    with compilations() as events:
        again = run(name)
    assert not events
    for a, b in zip(bits(again.state), bits(first_time.state), strict=True):
        np.testing.assert_array_equal(a, b)


@every_learner
def test_a_cut_training_goes_on_to_the_same_bits(name: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "learners", "test", ROLLOUTS, "nothing")
    for iterations in (1, 3):
        cut = run(name, iterations=iterations, context=RunContext(folder, progress=False))
    for a, b in zip(bits(cut.state), bits(both(name).state), strict=True):
        np.testing.assert_array_equal(a, b)
    for metric in cut.history.records[-1].metrics:
        found, want = (t.history.curve(metric)[1] for t in (cut, both(name)))
        np.testing.assert_array_equal(found, want)


@every_learner
def test_a_number_that_is_none_is_named(name: str) -> None:
    says = r"stage agent, iteration \d, seed 0: metric \w+ is nan, expected a finite number"
    with pytest.raises(DivergenceError, match=says):
        run(name, data=case(name).spoiled, iterations=9)


SWEEP = Imagination(False, False, True, False)
OWN_WORLDS = Imagination(False, True, False, False)


# Fresh critics hardly disagree about next states: MOBILE needs a large one to show.
@pytest.mark.parametrize(
    ("name", "strong"),
    [("mopo", 1.0), pytest.param("mobile", 100.0, marks=pytest.mark.slow)],
)
def test_a_coefficient_is_swept_in_one_program(name: str, strong: float) -> None:
    # Equal keys: what differs is the coefficient's doing.
    keys, data = jnp.stack([KEYS[0]] * 2), case(name).data

    def penalised(penalty: Any) -> Imagination:
        return data._replace(coefficients={"penalty": jnp.asarray(penalty, jnp.float32)})

    together = run(name, keys, penalised([0.0, strong]), per_seed=SWEEP)
    for i, penalty in enumerate((0.0, strong)):
        alone = run(name, keys[:1], penalised(penalty))
        assert_close(seed(together.state, i), seed(alone.state, 0))
    target = together.history.last("target_mean")
    assert target[0] > target[1] + 0.01, "a penalty lowers what is learned"
    with compilations() as events:
        run(name, keys, penalised([0.5, 3.0]), per_seed=SWEEP)
    assert not events
    other = replace(METHODS[name], penalty=3.0, steps=7)
    assert bind(other.program(), KNOWN, S, A) is case(name).learner


@pytest.mark.parametrize(("name", "coefficient"), [("mopo", "penalty"), ("combo", "weight")])
def test_without_its_coefficient_a_method_is_base(name: str, coefficient: str) -> None:
    """COMBO's agent leaves the entropy out of its targets, and so does its base here."""
    none = {coefficient: jnp.float32(0.0)}
    free = run(name, data=case(name).data._replace(coefficients=none))
    plain = METHODS["base"] if name == "mopo" else replace(METHODS["base"], agent=HARD)
    learner = bind(plain.program(), KNOWN, S, A)
    base = train_loop(
        learner.update, learner.init, KEYS, case("base").data, iterations=3, stage="agent"
    )
    if name == "combo":  # bit for bit: its critics' step has the same draws
        for a, b in zip(bits(free.state.agent), bits(base.state.agent), strict=True):
            np.testing.assert_array_equal(a, b)
    else:
        assert_close(free.state, base.state)


def test_worlds_are_not_in_checkpoints(tmp_path: Path) -> None:
    """Every seed's own world of a megabyte, and a folder that is smaller than one of them."""
    worlds = stack([WORLD | {"weights": jnp.full(250_000, float(i))} for i in range(2)])
    folder = RunFolder.create(tmp_path, "learners", "test", ROLLOUTS, "nothing")
    run(
        "ravl",
        data=case("ravl").data._replace(world=worlds),
        per_seed=OWN_WORLDS,
        iterations=1,
        context=RunContext(folder, progress=False),
    )
    size = sum(path.stat().st_size for path in folder.path.rglob("*") if path.is_file())
    assert 1_000 < size < 250_000


def test_neubays_worlds_are_not_in_its_state_either() -> None:
    learner, data = case("neubay").learner, case("neubay").data
    wide = data._replace(world=data.world._replace(elites=jnp.zeros(250_000)))
    sizes = [
        sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(learner.init, KEYS[0], given)))
        for given in (data, wide)
    ]
    assert sizes[0] == sizes[1] and isinstance(data, NeubayData)
