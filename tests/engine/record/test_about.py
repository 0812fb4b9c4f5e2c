"""Checkpoints say what they are of; who asks for something else is told what differs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxrl_rollouts.errors import CheckpointError
from jaxrl_rollouts.loop import train
from jaxrl_rollouts.record import checkpoint
from jaxrl_rollouts.record.about import ABOUT, check_facts, warnings_of
from jaxrl_rollouts.record.run import Run


@dataclass(frozen=True)
class Inner:
    rate: float = 1e-3
    sizes: tuple[int, ...] = (8, 8)


@dataclass(frozen=True)
class Outer:
    inner: Inner = field(default_factory=Inner)
    several: tuple[Inner, ...] = (Inner(1.0),)
    code: Any = None


def test_settings_stand_by_their_dotted_names_as_json_has_them() -> None:
    assert warnings_of(None) == {}
    assert warnings_of(Inner()) == {"rate": 1e-3, "sizes": [8, 8]}
    found = warnings_of({"kind": "a", "agent": Outer(code=len)})
    assert found["kind"] == "a" and found["agent.inner.rate"] == 1e-3
    assert found["agent.several"] == [{"rate": 1.0, "sizes": [8, 8]}]
    # Of code its kind: where it lies in memory is another place in every session.
    assert found["agent.code"] == "builtin_function_or_method"


def test_only_what_both_know_is_compared() -> None:
    kept = json.dumps(warnings_of({"rate": 0.1, "gone": 1}))
    check_facts(Path("x"), kept, warnings_of({"rate": 0.1, "new": 2}))
    check_facts(Path("x"), None, warnings_of({"rate": 0.2}))
    with pytest.raises(CheckpointError, match=r"x: rate: found a training with 0.1, expected 0.2;"):
        check_facts(Path("x"), kept, warnings_of({"rate": 0.2}))


def run(
    folder: Path, about: Any, iterations: int = 2, units: int = 1, seed: int = 0, rows: float = 0.0
) -> Any:
    keys = {"key": jax.random.split(jax.random.key(seed), 1), "rows": jnp.full(1, rows)}

    def update(state: jax.Array, data: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        return state + 1, {"value": state}

    with Run.open(folder, progress=False) as context:
        return train(
            update, lambda keys, data: jnp.zeros(()), keys, iterations=iterations, stage="a",
            units_per_iteration=units, context=context, about=about,
        )  # fmt: skip


def test_a_program_that_was_changed_is_not_given_what_it_trained_before(tmp_path: Path) -> None:
    run(tmp_path / "run", Inner())
    assert run(tmp_path / "run", Inner(), 3).state[0] == 3
    for change, name in ((Inner(rate=2e-3), "rate"), (Inner(sizes=(4,)), "sizes")):
        with pytest.raises(CheckpointError, match=f"{name}: found a training with"):
            run(tmp_path / "run", change)
    with pytest.raises(CheckpointError, match="updates of an iteration: .* 1, expected 5"):
        run(tmp_path / "run", Inner(), units=5)
    with pytest.raises(CheckpointError, match="keys of the seeds: found a training with '"):
        run(tmp_path / "run", Inner(), seed=1)
    # What was computed has other last bits elsewhere.
    assert run(tmp_path / "run", Inner(), 3, rows=1e-7).state[0] == 3
    # Nothing was touched, and a run of an earlier version, which does not say, is gone on with.
    assert run(tmp_path / "run", Inner(), 3).state[0] == 3
    folder = tmp_path / "run" / "a"
    for step in checkpoint.steps(folder):
        (folder / str(step) / ABOUT).unlink()
        digests = folder / str(step) / checkpoint.DIGESTS
        known = json.loads(digests.read_text())
        del known["files"][ABOUT], known["digest"]
        digests.write_text(json.dumps(known))
    assert run(tmp_path / "run", Inner(rate=2e-3), 3).state[0] == 3
