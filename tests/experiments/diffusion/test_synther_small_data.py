"""SynthER on few data: every seed's own rows, what is measured, and the run from end to end."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.diffusion import synther_small_data
from jaxrl_rollouts.experiments.diffusion.synther_small_data import EXPERIMENT
from jaxrl_rollouts.experiments.diffusion.synther_small_data_config import Config
from jaxrl_rollouts.experiments.diffusion.synther_small_data_page import KINDS, page
from jaxrl_rollouts.experiments.diffusion.synther_small_data_rows import (
    Share,
    make_rows,
    own_rows,
    passes_for,
    refilled,
    timed,
    with_noise,
)
from jaxrl_rollouts.offline.agents.critics import bootstrap_rate
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset, Transitions, take_rows
from jaxrl_rollouts.offline.environments.pendulum import PENDULUM
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.offline.synthetic.quality import augmented, quality_of
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.history import History
from jaxrl_rollouts.reports.claims import TIME_CONSTANTS
from jaxrl_rollouts.reports.report import Report, load_report
from jaxrl_rollouts.trees import stack

SMOKE, KEY = EXPERIMENT.preset("smoke"), jax.random.key(0)


@pytest.fixture(scope="module")
def data() -> Transitions:
    return pendulum_mixed(KEY, 2000)


def test_every_seed_has_rows_of_its_own(data: Transitions) -> None:
    numbered = data._replace(rewards=np.arange(2000, dtype=np.float32))
    one, two = own_rows(numbered, 0.1, KEY, 2)
    for rows in (one, two):
        assert len(rows.rewards) == 200 == len(np.unique(rows.rewards))
        assert (np.diff(rows.rewards) > 0).all()
        index = rows.rewards.astype(int)
        np.testing.assert_array_equal(rows.observations, data.observations[index])
    assert len(np.intersect1d(one.rewards, two.rewards)) < 50
    (whole,) = own_rows(numbered, 1.0, KEY, 1)
    np.testing.assert_array_equal(whole.rewards, numbered.rewards)


def test_real_rows_have_no_error_and_noisy_ones_do(data: Transitions) -> None:
    own = take_rows(data, np.arange(0, 2000, 40))
    best = quality_of(data, own, PENDULUM, KEY)
    assert best["novelty"] == 0.0 and best["error"] < 1e-8 and best["median"] < 1e-8
    assert best["marginal"] > 0.7
    noisy = augmented(own, 0.1, 0)
    unit = own.observations.std(0)
    shift = (noisy.observations - own.observations) / unit
    assert shift.std() == pytest.approx(0.1, rel=0.2)
    np.testing.assert_allclose(
        noisy.next_observations - own.next_observations, shift * unit, atol=1e-5
    )
    np.testing.assert_array_equal(noisy.actions, own.actions)
    worse = quality_of(data, noisy, PENDULUM, KEY)
    assert worse["novelty"] > 0.05 and worse["error"] > 1e-4 > best["error"]
    shuffled = own._replace(next_observations=own.next_observations[::-1])
    assert quality_of(data, shuffled, PENDULUM, KEY)["error"] > 0.1


def test_noisy_rows_are_as_many_as_samples_and_near_the_seeds_own(data: Transitions) -> None:
    rows = own_rows(data, 0.1, KEY, 2)
    for own, noisy in zip(rows, with_noise(rows, SMOKE), strict=True):
        assert len(noisy.rewards) == SMOKE.samples
        unit = own.observations.std(0)
        away = (noisy.observations[:, None] - own.observations) / unit
        assert np.sqrt((away**2).mean(-1).min(1)).max() < 4 * SMOKE.noise
        assert np.isin(noisy.rewards, own.rewards).all()


def test_every_share_has_as_many_gradient_steps_of_the_models() -> None:
    networks = EnsembleConfig(max_epochs=30, least_epochs=3, patience=5)
    assert passes_for(networks, 1.0) == networks
    fewer = passes_for(networks, 0.03)
    assert (fewer.max_epochs, fewer.least_epochs, fewer.patience) == (1000, 100, 167)
    assert replace(fewer, max_epochs=30, least_epochs=3, patience=5) == networks


def test_what_is_left_is_repeated_evenly(data: Transitions) -> None:
    few = take_rows(data, np.arange(300))._replace(rewards=np.arange(300, dtype=np.float32))
    full = refilled(few, 1000)
    times = np.bincount(full.rewards.astype(int))
    assert len(times) == 300 and set(times) == {3, 4}
    np.testing.assert_array_equal(full.actions, few.actions[full.rewards.astype(int)])
    np.testing.assert_array_equal(refilled(few, 300).rewards, few.rewards)


@pytest.mark.slow
def test_samples_are_told_anew_and_the_rest_stays(data: Transitions) -> None:
    told = ("model", "oracle", "ensemble", "ensemble-drop", "inverse")
    config = replace(SMOKE, told=told, seeds=1, level=0.5)
    make = partial(make_rows, Share(own_rows(data, 0.1, KEY, 1), 0.5, PENDULUM, KEY, "x"))
    made = make(config, None)
    (plain,) = made.rows["samples"]
    assert set(made.rows) == {"samples", "rows with noise", *told}
    assert all(len(one.rewards) == config.samples for (one,) in made.rows.values())
    for kind in ("model", "oracle", "ensemble"):
        (one,) = made.rows[kind]
        np.testing.assert_array_equal(one.observations, plain.observations)
        np.testing.assert_array_equal(one.actions, plain.actions)
        assert np.abs(one.next_observations - plain.next_observations).max() > 0.01
        assert made.kept[kind] == 1.0
    (true,) = made.rows["oracle"]
    assert quality_of(data, true, PENDULUM, KEY)["error"] < 1e-8
    (inverse,) = made.rows["inverse"]
    np.testing.assert_array_equal(inverse.next_observations, plain.next_observations)
    assert np.abs(inverse.actions - plain.actions).max() > 0.01
    # What is dropped is what the same ensemble tells, less some of it.
    (all_of_it,), (some) = made.rows["ensemble"], made.rows["ensemble-drop"][0]
    (share,) = made.kept["ensemble-drop"]
    assert 0 < share < 1
    left = np.unique(some.next_observations, axis=0)
    assert len(left) == round(share * config.samples)
    known = {row.tobytes() for row in all_of_it.next_observations}
    assert all(row.tobytes() in known for row in left)
    # The seconds of an arm are its models' and those of the samples it begins with.
    assert "rows with noise" not in made.seconds
    assert min(made.seconds[kind] for kind in told) > made.seconds["samples"] > 0
    # An arm does not depend on which others there are, nor do samples on whether any is.
    alone = make(replace(config, told=("ensemble",)), None)
    for kind in ("samples", "rows with noise", "ensemble"):
        jax.tree.map(np.testing.assert_array_equal, made.rows[kind], alone.rows[kind])


def test_a_simulator_that_cannot_be_set_is_refused_before_anything_is_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: Transitions
) -> None:
    blind = PENDULUM._replace(set_observation=None)
    setting = Setting(Dataset("pendulum-mixed", data, None, Path("x"), ""), blind)
    monkeypatch.setattr(synther_small_data, "setting_of", lambda *_: setting)
    context = RunContext(RunFolder.create(tmp_path, "toy", "test", SMOKE, "x"), progress=False)
    assert "oracle" in SMOKE.told
    with pytest.raises(ConfigError, match="set_observation"):
        EXPERIMENT.run(SMOKE, context)
    assert not [path for path in context.folder.path.iterdir() if path.is_dir()]


def test_where_no_simulator_can_be_set_rows_are_judged_by_the_data_alone(
    tmp_path: Path, data: Transitions
) -> None:
    blind = PENDULUM._replace(set_observation=None)
    own = take_rows(data, np.arange(0, 2000, 40))
    found, all_of_it = (quality_of(data, own, env, KEY) for env in (blind, PENDULUM))
    assert found == {k: v for k, v in all_of_it.items() if k not in ("error", "median")}
    config = replace(EXPERIMENT.preset("cpu"), told=("ensemble",), agents=("td3_bc",))
    scores = dict.fromkeys(config.kinds, 20.0)
    pages = [
        reported(tmp_path / name, config, dict.fromkeys(config.shares, scores), "x", hide)
        for name, hide in (("seen", ()), ("blind", ("error", "median")))
    ]
    named = [{claim.name for claim in report.claims} for report in pages]
    assert named[0] - named[1] == {"samples obey the dynamics better than rows with noise"}
    assert "error" in pages[0].tables["quality"][0] and "error" not in pages[1].tables["quality"][0]
    told = ["cannot be set" in " ".join(report.notes) for report in pages]
    assert told == [False, True]
    assert [len(report.pictures) for report in pages] == [2, 2]


def test_seconds_are_those_of_the_session_that_did_the_work(tmp_path: Path) -> None:
    context = RunContext(RunFolder.create(tmp_path, "x", "smoke", SMOKE, ""), progress=False)

    def work() -> int:
        begin = time.process_time()
        while time.process_time() - begin < 0.05:
            pass
        return 7

    done, spent = timed(context, "stage", work)
    assert done == 7 and 0.05 <= spent < 1.0
    assert timed(context, "stage", lambda: 8) == (8, spent)  # resumed: it was done before
    assert timed(None, "stage", lambda: 8)[1] < 0.05


def cell(returns: list[float], **extra: float) -> Cell:
    """Two seeds', trained to three time constants; more is the same for both."""
    history = History()
    history.append(3, {"return": np.array(returns)})
    return Cell(history, {k: np.full(2, v) for k, v in extra.items()}, rate=1.0, seeds=2)


def share_of(scores: dict[str, float], agents: tuple[str, ...], hide: tuple[str, ...] = ()) -> Grid:
    """Cells of a share that earn these scores of HalfCheetah, give or take a point by seed."""
    measured = ("marginal", "correlation", "novelty", "error", "median", "kept")
    quality = dict.fromkeys((name for name in measured if name not in hide), 0.5)
    spent = {"models": 3.0, "learning": 4.0}
    returns = {k: -280.178953 + (12135.0 + 280.178953) * v / 100 for k, v in scores.items()}
    cells = {
        (agent, kind): cell([r - 124.0, r + 124.0], **quality, **spent)
        for agent in agents
        for kind, r in returns.items()
    }
    return Grid(("agent", "kind"), cells)


def reported(
    tmp_path: Path, config: Config, scores: Any, dataset: str, hide: tuple[str, ...] = ()
) -> Report:
    folder = RunFolder.create(tmp_path, "synther_small_data", "cpu", config, "")
    report = Report.of(RunContext(folder, progress=False), 2)
    rows = pendulum_mixed(KEY, 400)
    setting = Setting(Dataset(dataset, rows, None, Path("(made)"), "", {}), PENDULUM)
    grids = {s: share_of(scores[s], config.agents, hide) for s in config.shares}
    page(report, config, setting, grids)
    return report


def test_what_is_told_anew_is_held_against_rows_and_noise(tmp_path: Path) -> None:
    base = {"rows": 20.0, "samples": 15.0, "rows with noise": 10.0, "ensemble-drop": 9.0}
    scores = {
        0.03: base | {"ensemble": 21.0, "oracle": 30.0},
        1.0: base | {"rows": 40.0, "ensemble": 36.0, "oracle": 34.0},
    }
    told = ("ensemble", "ensemble-drop", "oracle")
    config = replace(EXPERIMENT.preset("cpu"), shares=(0.03, 1.0), told=told)
    report = reported(tmp_path, config, scores, "halfcheetah-medium")
    claims = {claim.name: claim for claim in report.claims}
    for agent in ("TD3+BC", "IQL"):
        few, all_of_it = (f"{agent}: samples of {n} %, told by" for n in (3, 100))
        gains = {"rows": 1.0, "rows with noise": 11.0}
        for beside, gain in gains.items():
            claim = claims[f"{few} an ensemble, do better than {beside}"]
            assert np.mean(claim.values) == pytest.approx(gain * 124.15179, rel=1e-4)
            assert claim.verdict == "yes"
        claim = claims[f"{all_of_it} an ensemble, are as good as the rows"]
        assert claim.values == pytest.approx((-4.0, -4.0), abs=1e-4) and claim.verdict == "yes"
        claim = claims[f"{all_of_it} the simulator, are as good as the rows"]
        assert claim.values == pytest.approx((-6.0, -6.0), abs=1e-4) and claim.verdict == "no"
    rows = report.tables["returns"]
    assert len(rows) == 2 * 2 * 6 and {row["agent"] for row in rows} == {"TD3+BC", "IQL"}
    assert {(row["models, CPU s"], row["agent, CPU s"]) for row in rows} == {(3.0, 4.0)}
    assert ["kept" in row for row in report.tables["quality"]] == 2 * (2 * [False] + 3 * [True])
    assert any("0 % real ones" in note for note in report.notes)
    # Where nobody knows reference returns, nothing is said in points; where there is one agent and
    # nothing is told anew, the page is what it was.
    plain = replace(config, told=(), agents=("td3_bc",), real_share=0.25)
    report = reported(tmp_path, plain, scores, "pendulum-mixed")
    assert "agent" not in report.tables["returns"][0]
    assert not [claim for claim in report.claims if "told" in claim.name or ":" in claim.name]
    assert any("25 % real ones" in note for note in report.notes)


@pytest.mark.slow
def test_the_smoke_run_compares_every_share(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "synther_small_data", "smoke", SMOKE, "")
    EXPERIMENT.run(SMOKE, RunContext(folder, progress=False)).save(tmp_path)
    report = load_report(tmp_path)
    rows = report.tables["returns"]
    arms = ("", ", up-sampled", ", with noise", *(KINDS[kind] for kind in SMOKE.told))
    assert [(row["data"], row["agent"]) for row in rows] == [
        (f"{share} %{kind}", agent)
        for share in (1, 5)
        for agent in ("TD3+BC", "IQL")
        for kind in arms
    ]
    for begin in range(0, len(rows), len(arms)):
        plain, *others = rows[begin : begin + len(arms)]
        assert "score" not in plain  # the pendulum has no reference returns
        assert "gained" not in plain and plain["models, CPU s"] == 0.0 < plain["agent, CPU s"]
        for made in others:
            gained = np.subtract(made["return"].values, plain["return"].values)
            np.testing.assert_allclose(made["gained"].values, gained, rtol=1e-6)
    quality = report.tables["quality"]
    assert [(row["share, %"], row["rows"]) for row in quality] == [
        (share, kind) for share in (1.0, 5.0) for kind in SMOKE.judged_kinds
    ]
    assert all(0 <= value <= 1 for row in quality for value in row["marginal"].values)
    names = [claim.name for claim in report.claims]
    assert names[:3] == [
        "TD3+BC: up-sampling 1 % of the data helps",
        "TD3+BC: samples of 1 % do better than rows with noise",
        "TD3+BC: replacing 5 % of the data costs nothing",
    ]
    assert len(names) == 14 and set(report.pictures) == {"returns", "quality"}


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"shares": ()}, "shares"),
        ({"shares": (0.5, 0.1)}, "shares"),
        ({"shares": (0.5, 1.5)}, "shares"),
        ({"updates": 30_500}, "updates"),
        ({"noise": 0.0}, "noise"),
        ({"samples": 0}, "samples"),
        ({"told": ("ensemble", "guess")}, "told"),
        ({"told": ("oracle", "oracle")}, "told"),
        ({"agents": ()}, "agents"),
        ({"agents": ("sac",)}, "agents"),
        ({"real_share": 1.5}, "real_share"),
        ({"level": -0.1}, "level"),
    ],
)
def test_synther_settings_are_checked(change: dict, setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(replace(Config(), **change))
    assert caught.value.setting == setting


def test_presets_and_stacks() -> None:
    for name in ("smoke", "cpu", "gpu", "paper"):
        check(EXPERIMENT.preset(name))
    told = EXPERIMENT.preset("cpu")
    for agent in told.agents:  # claims about returns are decided
        assert told.updates * bootstrap_rate(told.named(agent)) >= TIME_CONSTANTS - 1e-9
    assert EXPERIMENT.preset("cpu").shares == (0.03, 0.15, 1.0)
    assert stack([np.zeros(2), np.ones(2)]).shape == (2, 2)
