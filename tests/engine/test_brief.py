"""What a notebook prints of a result: sizes and settings, no arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.brief import brief
from jaxrl_rollouts.record.history import History


class Result(NamedTuple):
    params: Any
    curve: Any
    unknown: Any = None
    named: Any = ()

    __repr__ = brief


@dataclass(frozen=True, repr=False)
class Outer:
    result: Result
    seconds: float
    run: Any = print
    facts: dict[str, Any] = field(default_factory=dict)

    __repr__ = brief


def test_arrays_are_shown_by_their_size() -> None:
    params = {"a": jnp.zeros((2, 500)), "b": [np.ones(24), jax.random.key(0)]}
    inner = Result(params, np.array([1.0, 2.5]), named=("u", "v"))
    shown = "Result(params=1,025 numbers in 3 arrays, curve=[1, 2.5], named=('u', 'v'))"
    assert repr(inner) == shown
    assert repr(Outer(inner, 1 / 3)) == f"Outer(result={shown}, seconds=0.333333)"
    wide = Result((), np.zeros((3, 4), np.float32), np.full(3, np.nan))
    assert repr(wide) == "Result(curve=float32[3, 4])"


def test_functions_inside_of_named_tuples_are_left_out() -> None:
    class Maker(NamedTuple):
        init: Any
        size: int = 7

    assert repr(Result(Maker(print), np.ones(1))) == "Result(params=Maker(size=7), curve=[1])"

    class Only(NamedTuple):
        init: Any

    assert repr(Result(Only(print), np.ones(1))) == "Result(curve=[1])"


def test_a_history_says_how_far_it_goes_and_what_it_has() -> None:
    history = History()
    assert repr(history) == "History(no records)"
    history.append(5, {"loss": np.ones(2), "return": np.ones(2)})
    assert repr(history) == "History(1 records, the last of iteration 5: loss, return)"
