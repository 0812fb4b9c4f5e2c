"""A seed of an emulator that diverges costs itself alone, and is never used by mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fixtures
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.errors import CheckpointError, ConfigError, DivergenceError
from jaxrl_rollouts.loop import train_loop
from jaxrl_rollouts.pde.emulator import FieldShape
from jaxrl_rollouts.pde.files import from_arrays
from jaxrl_rollouts.pde.fitting import Fitted, fit
from jaxrl_rollouts.pde.promises import group_of
from jaxrl_rollouts.pde.saved import load_emulator
from jaxrl_rollouts.reports.report import load_report

pytestmark = pytest.mark.filterwarnings("ignore:stage")
U = fixtures.waves(12, 6, (16,))[0][:, :, None]


def trained(spoiled: tuple[int, ...], *, seeds: int = 3, **options: Any) -> Fitted:
    """All seeds begin with the same weights but for the spoiled ones, which begin with NaN."""
    net, fields = fixtures.tiny(), from_arrays(U, dt=0.5)
    one = fixtures.stirred(net.make(FieldShape(1, 16)), 0.1)
    lost = np.isin(np.arange(seeds), spoiled)
    start = jax.tree.map(
        lambda x: jnp.where(lost.reshape(-1, *(1,) * x.ndim), jnp.nan, x[None]), one
    )
    more = {"validation": fields, "evaluations": 2, **options}
    return fit("mse", fields, network=net, steps=6, seeds=seeds, start=start, **more)


def equal(a: Any, b: Any, seed: int) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x[seed], y[seed])


def test_the_others_keep_their_bits_and_the_lost_one_cannot_be_rolled(tmp_path: Path) -> None:
    whole, found = trained(()), trained((0,), on_divergence="drop")
    assert not whole.trained.diverged and list(found.trained.diverged) == [0]
    for seed in (1, 2):
        equal(whole.params, found.params, seed)
        losses = (x.history.curve("loss")[1][:, seed] for x in (whole, found))
        np.testing.assert_array_equal(*losses)
        np.testing.assert_array_equal(*(x.roll(U[:2, 0], 2, seed=seed) for x in (whole, found)))
    for name in ("loss", "validation_error"):
        assert np.isnan(found.history.curve(name)[1][:, 0]).all()
    saved = load_emulator(found.save(tmp_path))
    for own in (found, saved):
        assert all(np.isnan(x[0]).all() for x in jax.tree.leaves(own.params))
        with pytest.raises(CheckpointError, match="training seed 0: .* diverged; take another"):
            own.roll(U[:2, 0], 2, seed=0)
    np.testing.assert_array_equal(saved.roll(U[:2, 0], 2, seed=1), whole.roll(U[:2, 0], 2, seed=1))
    # Nor is it a member whose agreement a promise rests on.
    members, _ = group_of(saved, {}, seed=2)
    assert [member.options["seed"] for member in members] == [2, 1]


def test_it_raises_where_none_is_left_or_where_asked() -> None:
    with pytest.raises(DivergenceError, match="seed 1"):
        trained((1,))
    with pytest.raises(DivergenceError):
        trained((0, 1, 2), on_divergence="drop")
    found = trained((1,), seeds=2, on_divergence="drop")
    with pytest.raises(ConfigError, match="at least 2 members"):
        group_of(found.emulator, {})
    with pytest.raises(ConfigError, match=r"key: found .* expected a whole number from -2\*\*63"):
        found.roll(U[:2, 0], 2, 10**40)


def spoiling(*seeds: int) -> Any:
    """The loop, with weights of some seeds that begin as NaN."""

    def loop(update: Any, init: Any, keys: Any, data: Any, **more: Any) -> Any:
        lost = jax.random.key_data(keys)[jnp.array(seeds)]

        def begin(key: Any, data: Any) -> Any:
            spoiled = (jax.random.key_data(key) == lost).all(-1).any()
            state = init(key, data)
            own = jax.tree.map(lambda x: jnp.where(spoiled, jnp.nan, x), state.params)
            return state._replace(params=own)

        return train_loop(update, begin, keys, data, **more)

    return loop


def test_a_run_reports_the_seed_that_it_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = tmp_path / "waves.npz", tmp_path / "runs"
    np.savez(file, u=U, dt=0.5, boundaries=np.asarray("periodic"))
    words = f"pde train {file} --out {out} --no-progress --preset smoke --steps 4".split()
    monkeypatch.setattr("jaxrl_rollouts.pde.fitting.train_loop", spoiling(0))
    cli.dispatch(words)
    (folder,) = out.iterdir()
    report = load_report(folder)
    row = report.tables["on trajectories it has not seen"][0]
    assert row[""] == "mse" and np.isnan([row[name].iqm for name in row if name]).all()
    assert any(note.startswith("Seed 0 of mse diverged by gradient step") for note in report.notes)
    with pytest.raises(CheckpointError, match="diverged"):
        cli.dispatch(["pde", "roll", str(folder), str(file), "--out", str(tmp_path / "r.h5")])
    again = ["pde", "roll", str(folder), str(file), "--out", str(tmp_path / "r.h5")]
    cli.dispatch([*again, "--training-seed", "1", "--steps", "3"])
    with pytest.raises(DivergenceError, match="seed 0"):
        cli.dispatch([*words, "--on-divergence", "raise"])
    monkeypatch.setattr("jaxrl_rollouts.pde.fitting.train_loop", spoiling(0, 1))
    with pytest.raises(SystemExit, match="3"):
        cli.main(words)
