"""Sources of data against each other: what is compared, what is claimed, and the smoke run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.compare.grid import Cell, Grid, run_grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.diffusion.pgd_agents import EXPERIMENT
from jaxrl_rollouts.experiments.diffusion.pgd_agents_cells import (
    LOOK,
    PLAIN,
    Config,
    action_gap,
    dynamics_of,
    make_sources,
    parts_of,
    some_rows,
)
from jaxrl_rollouts.experiments.diffusion.pgd_agents_page import page
from jaxrl_rollouts.offline.agents.registry import make_agent
from jaxrl_rollouts.offline.behaviours.acrobot import BEHAVIOUR, pump_policy
from jaxrl_rollouts.offline.collect import collect
from jaxrl_rollouts.offline.data import Dataset
from jaxrl_rollouts.offline.environments.acrobot import ACROBOT
from jaxrl_rollouts.offline.study.source import Setting
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import Report, load_report

SMOKE = EXPERIMENT.preset("smoke")
ROWS = collect(ACROBOT, pump_policy, BEHAVIOUR, jax.random.key(0), steps=400)
PLAIN_SMOKE = replace(SMOKE, sources=PLAIN)
SETTING = Setting(Dataset("acrobot-broad", ROWS, "acrobot", Path("x"), ""), ACROBOT)


def test_gaps_are_those_of_each_seeds_policy() -> None:
    config = SMOKE.regularisers("td3_bc")["alpha 2.5"]
    agent = make_agent(config, 6, 1)
    actors = jax.vmap(lambda key: agent.init(key).actor)(jax.random.split(jax.random.key(0), 2))
    shared = jax.tree.map(lambda x: jnp.asarray(x)[None], ROWS)
    found = action_gap(agent, actors, shared)
    for seed in range(2):
        actor = jax.tree.map(lambda x, seed=seed: x[seed], actors)
        mean, _ = agent.gaussian(actor, jnp.asarray(ROWS.observations))
        assert found[seed] == pytest.approx(float(jnp.square(ROWS.actions - mean).mean()), rel=1e-4)
    twice = jax.tree.map(lambda x: jnp.concatenate([x, x]), shared)
    np.testing.assert_allclose(action_gap(agent, actors, twice), found, rtol=1e-5)


def test_settings_of_agents_are_swept_from_their_default() -> None:
    config = Config(alphas=(2.5, 40.0), iql=((0.7, 3.0), (0.9, 10.0)))
    td3 = config.regularisers("td3_bc")
    assert {label: c.alpha for label, c in td3.items()} == {"alpha 2.5": 2.5, "alpha 40": 40.0}
    iql = config.regularisers("iql")
    assert list(iql) == ["tau 0.7, beta 3", "tau 0.9, beta 10"]
    assert all(c.normalise for c in (*td3.values(), *iql.values()))
    assert [(c.expectile, c.inverse_temperature) for c in iql.values()] == list(config.iql)
    normed = replace(config, critic_norm=True, polyak=0.05).regularisers("td3_bc")
    assert list(normed) == [*td3, "alpha 2.5, critic norm"]
    assert [(c.alpha, c.critic_norm) for c in normed.values()] == [
        (2.5, False), (40.0, False), (2.5, True)
    ]  # fmt: skip
    assert {c.polyak for c in normed.values()} == {0.05}


@pytest.mark.slow
def test_the_run_has_every_cell_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "pgd_agents", "smoke", SMOKE, "")
    EXPERIMENT.run(SMOKE, RunContext(folder, progress=False)).save(tmp_path)
    report = load_report(tmp_path)
    cells = report.tables["cells"][1:]
    want = [(s, f"alpha {a:g}") for a in SMOKE.alphas for s in SMOKE.sources]
    assert [(row["source"], row["regulariser"]) for row in cells] == want
    by = {(row["source"], row["regulariser"]): row for row in cells}
    # True transitions make no error in the simulator, generated ones do.
    assert by["real", "alpha 2.5"]["dynamics error"] < 1e-6
    for source in ("synther", "unguided", "guided", "synther-told", "guided-told"):
        assert by[source, "alpha 2.5"]["dynamics error"] > 1e-3
        assert len(by[source, "alpha 40"]["return"].values) == 2
        assert by[source, "alpha 40"]["action gap"].mean > 0
        assert 0 < by[source, "alpha 40"]["size of actions"] <= 1
    assert by["unguided-oracle", "alpha 2.5"]["dynamics error"] < 1e-6
    assert {row["terminations"] for row in cells} == {0.0}  # the data have none
    best = {row["source"]: row for row in report.tables["default and best"]}
    assert best["guided"]["default"].values == by["guided", "alpha 2.5"]["return"].values
    assert set(report.pictures) == {"sources", "sweeps"} and len(report.claims) == 5 + 8
    assert any(note.startswith("Told: ") for note in report.notes)
    beats = report.claims[0]
    difference = np.subtract(
        by["guided", "alpha 2.5"]["return"].values, by["unguided", "alpha 2.5"]["return"].values
    )
    np.testing.assert_allclose(beats.values, difference, rtol=1e-5)
    assert beats.threshold == 20.0
    stages = sorted(path.name for path in folder.path.iterdir() if path.is_dir())
    assert len(stages) == 3 + 14 and "acrobot-broad-td3_bc-guided-alpha-2.5" in stages
    # Finished stages are not trained again: their checkpoints stay as they are.
    saved = folder.stage("acrobot-broad-td3_bc-real-alpha-40") / str(SMOKE.refreshes)
    before = saved.stat().st_mtime_ns
    again = EXPERIMENT.run(
        replace(SMOKE, sources=("real",)), RunContext(folder, progress=False)
    ).tables["cells"][1:]
    assert saved.stat().st_mtime_ns == before
    for row in again:
        assert row["return"].values == by["real", row["regulariser"]]["return"].values


@pytest.mark.slow
def test_sources_told_anew_have_the_same_actions_and_other_transitions() -> None:
    names = ("synther", "unguided", "synther-oracle", "unguided-oracle", "unguided-told")
    sets = make_sources("acrobot-broad", replace(SMOKE, sources=names), None).sets
    assert set(sets) == {"real", *names}
    for sampled in ("synther", "unguided"):
        plain, true = sets[sampled], sets[f"{sampled}-oracle"]
        np.testing.assert_array_equal(plain.actions, true.actions)
        assert jnp.abs(plain.next_observations - true.next_observations).max() > 1e-2
    # Windows stay trajectories: a step begins where the one before led.
    paths = sets["unguided-oracle"]
    steps = SMOKE.length - 1
    ends, begins = (
        np.asarray(x).reshape(-1, steps, 6) for x in (paths.next_observations, paths.observations)
    )
    np.testing.assert_array_equal(begins[:, 1:], ends[:, :-1])
    first = np.asarray(sets["unguided"].observations).reshape(-1, steps, 6)[:, 0]
    np.testing.assert_array_equal(begins[:, 0], first)


def test_sources_have_parts() -> None:
    assert [parts_of(source) for source in ("real", "guided", "guided-told")] == [
        ("real", ""), ("guided", ""), ("guided", "told")
    ]  # fmt: skip


@pytest.mark.slow
def test_synthetic_sets_are_equally_large_and_bounded() -> None:
    config = replace(SMOKE, sources=("synther", "unguided"))
    sources = make_sources("acrobot-broad", config, None)
    rows = [sources.sets[source] for source in ("synther", "unguided")]
    assert {len(one.rewards) for one in rows} == {config.pool * (config.length - 1)}
    for one in rows:
        assert float(jnp.abs(one.actions).max()) <= 1.0
        assert bool(jnp.isfinite(one.observations).all())
        error = dynamics_of(sources, jax.tree.map(lambda x: x[None], one))["dynamics"]
        assert error.shape == (1,) and error[0] > 0


def cell(returns: list[float], dynamics: float = 1.0) -> Cell:
    names = ("return", "discounted_return", "estimated_value", "gap", "terminations")
    extra = dict.fromkeys(names, np.array(returns)) | {"dynamics": np.full(1, dynamics)}
    extra |= {"size": np.full(1, 0.5)}
    return Cell(extra=extra)


def reported(tmp_path: Path, config: Config, name: str, grid: Grid) -> Report:
    folder = RunFolder.create(tmp_path, "pgd_agents", "smoke", config, "")
    report = Report.of(RunContext(folder, progress=False), 2)
    page(report, config, {name: SETTING}, {name: grid})
    share = f"SynthER's too, {100 * config.real_share:g} % are real rows"
    assert any(share in note for note in report.notes)
    return report


PILOT: dict[str, list[list[float]]] = {  # source -> regulariser -> seeds
    "real": [[-74.0, -70.0], [-35.0, -28.0]],
    "synther": [[-80.0, -80.0], [-60.0, -60.0]],
    "unguided": [[-85.0, -85.0], [-70.0, -70.0]],
    "guided": [[-53.0, -51.0], [-50.0, -48.0]],
}


def grid_of(table: dict[str, list[list[float]]], config: Config) -> Grid:
    labels = list(config.regularisers("td3_bc"))

    def train(agent: str, source: str, label: str, *, stage: str) -> Cell:
        return cell(table[source][labels.index(label)], 0.1 if "told" in source else 1.0)

    axes = {"agent": ("td3_bc",), "source": tuple(table), "regulariser": labels}
    return run_grid(axes, train, None, seeds=2, clear=False)


def test_claims_are_the_pilots_bands(tmp_path: Path) -> None:
    report = reported(tmp_path, PLAIN_SMOKE, "acrobot-broad", grid_of(PILOT, PLAIN_SMOKE))
    holds = {claim.name.split(": ")[1]: claim.holds for claim in report.claims}
    assert holds == {
        "guided beats unguided at the default": True,
        "guided beats real at the default": True,
        "guided beats real, best against best": False,
        "a weaker regulariser on real data does what guidance does": True,
        "unguided is no better than real": True,
    }
    (best,) = (r for r in report.tables["default and best"] if r["source"] == "real")
    assert best["best regulariser"] == "alpha 40" and best["best"].values == (-35.0, -28.0)
    worse: Any = PILOT | {"guided": [[-66.0, -66.0], [-50.0, -48.0]]}
    again = reported(tmp_path, PLAIN_SMOKE, "acrobot-broad", grid_of(worse, PLAIN_SMOKE))
    holds = {claim.name.split(": ")[1]: claim.holds for claim in again.claims}
    assert not holds["guided beats unguided at the default"]  # by 19 only
    assert not holds["guided beats real at the default"]  # by 6 only


def test_a_diverged_cell_makes_no_claim_hold(tmp_path: Path) -> None:
    lost: Any = PILOT | {"guided": [[np.nan, np.nan], [-50.0, -48.0]]}
    report = reported(tmp_path, PLAIN_SMOKE, "acrobot-broad", grid_of(lost, PLAIN_SMOKE))
    holds = {claim.name.split(": ")[1]: claim.holds for claim in report.claims}
    assert not holds["guided beats unguided at the default"]
    assert not holds["a weaker regulariser on real data does what guidance does"]
    assert not holds["guided beats real, best against best"]  # the other setting is left: -50


def test_scores_are_claimed_where_there_are_references(tmp_path: Path) -> None:
    table: Any = {k: [[100.0, 200.0], [0.0, 0.0]] for k in PILOT}
    report = reported(tmp_path, PLAIN_SMOKE, "hopper-mixed", grid_of(table, PLAIN_SMOKE))
    names = [claim.name for claim in report.claims]
    assert "td3_bc, hopper-mixed: SynthER's data are as good as the real ones" in names
    assert [claim.threshold for claim in report.claims[:2]] == [0.0, 0.0]
    row = report.tables["default and best"][0]
    want = 100 * (np.array([100.0, 200.0]) + 20.272305) / (3234.3 + 20.272305)
    np.testing.assert_allclose(row["best score"].values, want)


def test_claims_of_relabelled_sources_are_the_papers_order(tmp_path: Path) -> None:
    told: Any = {
        "real": [[-50.0, -50.0], [-30.0, -30.0]],
        "guided": [[-60.0, -60.0], [-55.0, -55.0]],
        "unguided-told": [[-55.0, -55.0], [-45.0, -45.0]],
        "guided-told": [[-40.0, -40.0], [-35.0, -35.0]],
        "guided-oracle": [[-30.0, -30.0], [-30.0, -30.0]],
    }
    config = replace(SMOKE, sources=tuple(told))
    report = reported(tmp_path, config, "acrobot-broad", grid_of(told, config))
    holds = {claim.name.split(": ")[1]: claim.holds for claim in report.claims}
    assert {name: hold for name, hold in holds.items() if "told" in name} == {
        "guided-told beats unguided-told, at the default": True,
        "guided-told beats unguided-told, best against best": True,
        "guided-told beats real, at the default": True,
        "guided-told beats real, best against best": False,
        "unguided-told beats real, at the default": False,
        "unguided-told beats real, best against best": False,
        "guided-told beats guided, at the default": True,
        "guided-told beats guided, best against best": True,
        "true transitions would add little to guided-told": False,
        "guided-told makes fewer errors than guided": True,
    }


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"agents": ("sac",)}, "agents"),
        ({"sources": ()}, "sources"),
        ({"alphas": ()}, "datasets, alphas, iql"),
        ({"evaluations": 3}, "evaluations"),
        ({"pool": 0}, "pool"),
        ({"real_share": 1.5}, "real_share"),
        ({"sources": ("real-told",)}, "sources"),
        ({"polyak": 0.0}, "polyak"),
    ],
)
def test_settings_of_pgd_agents_are_checked(change: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(replace(Config(), **change))
    assert caught.value.setting == setting


def test_rows_that_are_looked_at_are_of_every_step_of_the_windows() -> None:
    # 7680 windows of 5 transitions of which only the last terminates.
    ends = np.zeros((2, 7680, 5), bool)
    ends[:, :, -1] = True
    rows = jax.tree.map(lambda x: jnp.zeros((2, 38_400, *x.shape[1:])), ROWS)
    looked = some_rows(rows._replace(terminations=ends.reshape(2, -1)), jax.random.key(0))
    assert looked.rewards.shape == (2, LOOK)
    np.testing.assert_allclose(looked.terminations.mean(1), 0.2, atol=0.03)
    few = jax.tree.map(lambda x: x[:, :10], rows)._replace(rewards=jnp.arange(20.0).reshape(2, 10))
    np.testing.assert_array_equal(
        np.sort(some_rows(few, jax.random.key(0)).rewards), np.arange(20.0).reshape(2, 10)
    )
