"""Strategies of forecasts, of states and of fields: numpy's versions, and what rectifiers leave."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.strategies import Strategy, forecast, reads, widest

KINDS = ["rec", "dir", "dirrec", "rectifier"]
S, A, H, B, X = 2, 1, 4, 5, 3
WIDE = {"rec": [4], "dir": [4, 6], "dirrec": [4, 10], "rectifier": [8, 14]}


def linear(wide: list[int], rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
    """Matrices, and networks of them that treat all points alike."""
    weights = [rng.normal(size=(n, 2 * S)) for n in wide]

    def head(state: jax.Array, rest: jax.Array, w: Any) -> jax.Array:
        return jnp.einsum("bn...,nm->bm...", jnp.concatenate([state, rest], 1), jnp.asarray(w))

    return weights, tuple(lambda s, rest, w=w: head(s, rest, w) for w in weights)


@pytest.mark.parametrize("kind", KINDS)
def test_forecasts_are_numpys(kind: Any) -> None:
    """Networks are linear here, and each is its own."""
    rng, strategy = np.random.default_rng(2), Strategy(kind, 2, H)
    state, actions = rng.normal(size=(B, S)), rng.normal(size=(H, B, A))
    base = rng.normal(size=(H, B, S))
    weights, heads = linear(WIDE[kind], rng)
    start, taken = (jnp.asarray(x) for x in (state, actions))
    mended = kind == "rectifier"
    found = forecast(strategy, heads, start, taken, jnp.asarray(base) if mended else None)
    for row in range(B):
        path: list[np.ndarray] = []
        for i in range(2):
            last = path[-1] if path else state[row]
            since = {"rec": actions[2 * i : 2 * i + 2, row]}.get(kind, actions[: 2 * i + 2, row])
            known = {"dirrec": path, "rectifier": list(base[: 2 * i + 2, row])}.get(kind, [])
            first = last if kind == "rec" else state[row]
            x = np.concatenate([first, *known, since.ravel()])
            change = (x @ weights[i % len(weights)]).reshape(2, S)
            for j in range(2):
                own = base[2 * i + j, row] if mended else last
                path.append(change[j] + (state[row] if kind == "dir" else own))
        np.testing.assert_allclose(found[:, row], np.stack(path), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("acts", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_field_is_forecast_as_its_points_are(kind: Any, acts: bool) -> None:
    rng, strategy = np.random.default_rng(4), Strategy(kind, 2, H)
    state, base, actions = (
        jnp.asarray(rng.normal(size=(*lead, X))) for lead in ((B, S), (H, B, S), (H, B, A))
    )
    idle = [n - 2 * (i + 1) * A for i, n in enumerate(WIDE[kind])]
    _, heads = linear(WIDE[kind] if acts else idle, rng)
    given: dict[str, Any] = {"base": base} if kind == "rectifier" else {}

    def at(x: Any) -> Any:
        return {name: value[..., x] for name, value in given.items()}

    found = forecast(strategy, heads, state, actions if acts else None, **given)
    assert found.shape == (H, B, S, X)
    for x in range(X):
        one = forecast(strategy, heads, state[..., x], actions[..., x] if acts else None, **at(x))
        np.testing.assert_allclose(found[..., x], one, rtol=1e-5, atol=1e-5)


def test_a_rectifier_of_nothing_leaves_the_base() -> None:
    base = jnp.asarray(np.random.default_rng(3).normal(size=(H, B, S)))
    nothing: Any = (lambda s, rest: jnp.zeros((len(s), 2 * S)),) * 2
    found = forecast(Strategy("rectifier", 2, H), nothing, base[0], base=base)
    np.testing.assert_array_equal(found, base)


def three_layers(width: int, seen: int, made: int) -> int:
    return width * (seen + 2 * width + made)


@pytest.mark.parametrize("kind", KINDS)
def test_networks_have_as_many_weights_as_there_are_to_share(kind: Any) -> None:
    states, actions, strategy = 3, 2, Strategy(kind, 5, 20)
    given = jnp.zeros((1, states)), jnp.zeros((20, 1, actions)), jnp.zeros((20, 1, states))
    read = [reads(strategy, i, *given) for i in range(strategy.heads)]
    columns = [first.shape[1] + rest.shape[1] for first, rest, _ in read]

    def total(width: int) -> int:
        return sum(width * (n + 2 * width + 5 * states) for n in columns)

    width = widest(strategy, 40_000, (states, actions), three_layers)
    assert total(width) <= 40_000 < total(width + 1)
