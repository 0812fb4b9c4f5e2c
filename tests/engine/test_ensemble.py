"""Ensembles: three ways to ask that must agree, and measures of disagreement."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts import ensemble as disagreement
from jaxrl_rollouts.ensemble import (
    IN_TURN,
    apply_assigned,
    each_member,
    ensemble,
    safe_min,
    select_members,
    take_members,
)
from jaxrl_rollouts.networks import MLP, from_linen
from jaxrl_rollouts.rollouts import Members, draw_members

MEMBERS, BATCH = 3, 12
NETWORK = from_linen(MLP((8,), (2, 1)), jax.ShapeDtypeStruct((1, 4), jnp.float32))
ENSEMBLE = ensemble(NETWORK, MEMBERS)
PARAMS = ENSEMBLE.init(jax.random.key(0))
ROWS = jax.random.normal(jax.random.key(1), (BATCH, 4))
ALL = ENSEMBLE.apply_all(PARAMS, ROWS)
SLOTS = st.lists(st.integers(0, MEMBERS - 1), min_size=BATCH, max_size=BATCH)


@functools.partial(jax.jit, static_argnames="capacity")
def assigned(slots: Any, capacity: int) -> Any:
    return apply_assigned(ENSEMBLE.apply_each, PARAMS, ROWS, slots, capacity)


def test_members_start_apart_and_answer_as_the_network_would() -> None:
    for leaf in jax.tree.leaves(PARAMS):
        assert leaf.shape[0] == MEMBERS
    kernels = PARAMS["Dense_0"]["kernel"]
    assert (kernels[0] != kernels[1]).all() and (kernels[1] != kernels[2]).all()
    for i in range(MEMBERS):
        alone = NETWORK.apply(jax.tree.map(lambda p, i=i: p[i], PARAMS), ROWS)
        for whole, own in zip(ALL, alone, strict=True):
            np.testing.assert_allclose(whole[i], own, rtol=1e-5, atol=1e-6)


def test_apply_each_gives_every_member_its_own_rows() -> None:
    rows = jax.random.normal(jax.random.key(2), (MEMBERS, 5, 4))
    got = ENSEMBLE.apply_each(PARAMS, rows)
    for i in range(MEMBERS):
        want = ENSEMBLE.apply_all(PARAMS, rows[i])
        jax.tree.map(
            lambda g, w, i=i: np.testing.assert_allclose(g[i], w[i], rtol=1e-5, atol=1e-6),
            got,
            want,
        )


@given(slots=SLOTS)
def test_assigned_rows_are_gathered_from_all(slots: list[int]) -> None:
    slots = np.array(slots, np.int32)
    for got, every in zip(assigned(slots, BATCH), ALL, strict=True):
        np.testing.assert_allclose(got, every[slots, np.arange(BATCH)], rtol=1e-5, atol=1e-6)


@given(slots=SLOTS, capacity=st.sampled_from([1, 4]))
def test_rows_over_the_capacity_are_nan_and_others_right(slots: list[int], capacity: int) -> None:
    rank = np.array([slots[:i].count(slot) for i, slot in enumerate(slots)])
    slots = np.array(slots, np.int32)
    for got, every in zip(assigned(slots, capacity), ALL, strict=True):
        want = np.where(rank[:, None] < capacity, every[slots, np.arange(BATCH)], np.nan)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@given(seed=st.integers(0, 2**31 - 1))
def test_balanced_draws_fit_the_promised_capacity(seed: int) -> None:
    slots = draw_members(Members(jnp.arange(MEMBERS)), jax.random.key(seed), BATCH)
    mean, _ = assigned(slots, BATCH // MEMBERS)
    assert np.isfinite(mean).all()


def test_assigned_under_vmap() -> None:
    slots = jnp.stack([jnp.arange(BATCH) % MEMBERS, jnp.arange(BATCH) // 4])
    mean, _ = jax.vmap(lambda s: assigned(s, 4))(slots)
    for i in range(2):
        expected = ALL[0][slots[i], jnp.arange(BATCH)]
        np.testing.assert_allclose(mean[i], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_members_in_turn_answer_as_side_by_side(order: int) -> None:
    def value(params: Any, rows: Any, in_turn: bool) -> Any:
        def one(member: Any) -> tuple[jax.Array, jax.Array]:  # a network, and its slope in rows
            mean, pull = jax.vjp(lambda x: NETWORK.apply(member, x)[0], rows)
            return mean, pull(jnp.ones_like(mean))[0]

        return each_member(one, params, in_turn)

    def asked(params: Any, rows: Any, in_turn: bool) -> Any:
        outputs = value(params, rows, in_turn)
        return outputs if order == 0 else sum(jnp.square(x).sum() for x in outputs)

    found = jax.grad(asked, order - 1) if order else asked  # of parameters, of rows
    ask = jax.jit(found, static_argnums=2)
    in_turn = jax.tree.leaves(ask(PARAMS, ROWS, True))
    side_by_side = jax.tree.leaves(ask(PARAMS, ROWS, False))
    assert max(jnp.abs(leaf).max() for leaf in side_by_side) > 0.1
    for one, other in zip(in_turn, side_by_side, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cores", [True, False])
def test_many_members_take_turns_on_a_core(cores: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxrl_rollouts.ensemble.cores_are_devices", lambda: cores)

    def turns(size: int) -> bool:
        many = ensemble(NETWORK, size)
        asked = jax.jit(lambda p: many.apply_all(p, ROWS))
        return "scan[" in str(asked.trace(many.init(jax.random.key(0))).jaxpr)

    assert turns(IN_TURN) is cores and not turns(IN_TURN - 1)


def test_take_and_select() -> None:
    tree = {"a": jnp.arange(6.0).reshape(3, 2), "b": jnp.arange(3)}
    taken = take_members(tree, jnp.array([2, 0]))
    assert taken["a"].tolist() == [[4.0, 5.0], [0.0, 1.0]] and taken["b"].tolist() == [2, 0]
    negative = jax.tree.map(lambda x: -1 - x, tree)
    mixed = select_members(jnp.array([True, False, True]), negative, tree)
    assert mixed["b"].tolist() == [-1, 1, -3]
    assert mixed["a"].tolist() == [[-1.0, -2.0], [2.0, 3.0], [-5.0, -6.0]]


def test_size_below_one() -> None:
    with pytest.raises(ValueError, match="size: found 0"):
        ensemble(NETWORK, 0)


@given(st.lists(st.integers(-3, 3), min_size=6, max_size=6))
def test_the_least_is_the_minimum_and_its_gradient_the_first_least_members(found: list) -> None:
    values = jnp.array(found, jnp.float32).reshape(3, 2)  # ties are frequent
    np.testing.assert_array_equal(safe_min(values), values.min(0))
    slope = jax.grad(lambda v: (safe_min(v) * jnp.array([1.0, 5.0])).sum())(values)
    wanted = np.zeros((3, 2))
    wanted[np.asarray(values).argmin(0), [0, 1]] = [1.0, 5.0]
    np.testing.assert_array_equal(slope, wanted)


def test_what_is_no_number_or_infinite_is_not_hidden_by_the_least() -> None:
    values = jnp.array([[1.0, jnp.inf, 2.0], [jnp.nan, jnp.inf, -jnp.inf]])
    np.testing.assert_array_equal(safe_min(values), [np.nan, np.inf, -np.inf])


N, B, O = 4, 5, 3  # noqa: E741
RNG = np.random.default_rng(0)
MEANS = RNG.normal(size=(N, B, O)).astype(np.float32)
STDS = RNG.uniform(0.1, 2.0, size=(N, B, O)).astype(np.float32)


def max_aleatoric(row: int) -> float:
    """MOPO, equation 8 with the Frobenius norm of the diagonal covariance's root."""
    return max(np.sqrt(sum(STDS[i, row, o] ** 2 for o in range(O))) for i in range(N))


def max_pairwise(row: int) -> float:
    """MOReL, definition 1: the largest distance between two members."""
    return max(
        np.sqrt(sum((MEANS[i, row] - MEANS[j, row]) ** 2)) for i in range(N) for j in range(N)
    )


def spread_of_means(row: int) -> float:
    """Root of the variance over members, averaged over outputs."""
    centre = sum(MEANS[:, row]) / N
    return np.sqrt(sum(((MEANS[i, row] - centre) ** 2).sum() for i in range(N)) / (N * O))


def total_spread(row: int) -> float:
    """Root of the mixture's variance E[x^2] - E[x]^2, averaged over outputs."""
    second = (STDS[:, row] ** 2 + MEANS[:, row] ** 2).mean(0)
    return np.sqrt((second - MEANS[:, row].mean(0) ** 2).mean())


@pytest.mark.parametrize("formula", [max_aleatoric, max_pairwise, spread_of_means, total_spread])
def test_formula(formula: object) -> None:
    got = getattr(disagreement, formula.__name__)(MEANS, STDS)
    np.testing.assert_allclose(got, [formula(row) for row in range(B)], rtol=1e-5)


def test_bellman_spread() -> None:
    estimates = MEANS[..., 0]
    want = np.sqrt(((estimates - estimates.mean(0)) ** 2).sum(0) / (N - 1))
    np.testing.assert_allclose(disagreement.bellman_spread(estimates), want, rtol=1e-5)
