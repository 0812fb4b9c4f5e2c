"""The edge of reach as an experiment: settings, the exact edge, and a run from end to end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_rollouts.compare.grid import Cell, Grid
from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.ravl.edge_of_reach_toy import EXPERIMENT
from jaxrl_rollouts.experiments.ravl.edge_of_reach_toy_cells import (
    BASE,
    PATCHED,
    Config,
    reach_of,
)
from jaxrl_rollouts.experiments.ravl.edge_of_reach_toy_page import add_claims
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.reports.report import load_report


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="evaluations"):
        check(Config(epochs=10, evaluations=3))
    with pytest.raises(ConfigError, match="rows"):
        check(Config(rows=0))
    with pytest.raises(ConfigError, match="horizons"):
        check(Config(horizons=()))
    for preset in EXPERIMENT.presets.values():
        check(preset)
    config = EXPERIMENT.preset("cpu")
    steps = config.epochs * config.rollouts.updates_per_epoch
    assert config.seeds >= 6 and steps * config.agent.polyak * (1 - config.agent.discount) >= 3


def test_the_edge_is_exact() -> None:
    reach = reach_of(Config(half_width=2.0), 10)
    states = jnp.array([[0.0, 1.9], [10.9, 0.0], [11.1, 0.0], [-3.0, -12.0], [0.0, 12.1]])
    assert reach.within(states).tolist() == [True, True, False, False, False]
    assert reach.edge(states).tolist() == [False, False, True, True, False]


def test_arms_differ_in_their_critics_only() -> None:
    arms = Config(ravl=((5, 1.0), (20, 10.0))).arms
    assert list(arms) == [BASE, PATCHED, "ravl 5, 1", "ravl 20, 10"]
    found = [(m.agent.critics, m.agent.diversity) for m in arms.values()]
    assert found == [(2, 0.0), (2, 0.0), (5, 1.0), (20, 10.0)]


def cell(**arrays: list[float]) -> Cell:
    return Cell(extra={name: np.array(values) for name, values in arrays.items()}, seeds=2)


def test_claims_are_about_every_seed() -> None:
    """One seed that behaves otherwise is enough for a claim to fail."""
    spreads = {"spread_edge": [9.0, 8.0], "spread_within": [2.0, 2.0]}
    fails = {"percent": [20.0, 60.0], "estimated_value": [300.0, 140.0]}
    cured = {"percent": [90.0, 85.0], "estimated_value": [96.0, 115.0], "true_value": [95.0, 90.0]}
    cells = {
        (BASE, 10): cell(**fails, **spreads, excess=[99.0, 99.0]),
        (PATCHED, 10): cell(**cured, **spreads, excess=[0.0, 0.0]),
        ("ravl 5, 1", 10): cell(percent=[95.0, 20.0], **spreads, excess=[-5.0, 7.0]),
    }
    claims = {}
    report = SimpleNamespace(claim=lambda claim: claims.setdefault(claim.name, claim))
    add_claims(report, Grid(("method", "k"), cells), 10, 100.0)  # type: ignore[arg-type]
    values = {name: claim.values[0] for name, claim in claims.items()}
    assert values["k = 10: base fails in every seed"] == 60.0
    assert values["k = 10: base's values explode in every seed"] == 1.4
    assert values["k = 10: the oracle at the edge alone cures base in every seed"] == 85.0
    ratio = values["k = 10: the patched critics are calibrated in every seed"]
    assert ratio == pytest.approx(115 / 90)
    assert values["RAVL cures somewhere, in every seed"] == 20.0
    assert values["k = 10: RAVL's critics disagree at the edge"] == 4.0
    assert values["RAVL is cured where its least critic is below V* at the edge"] == 100.0


@pytest.mark.slow
def test_smoke_run_reports_and_redraws(tmp_path: Path) -> None:
    config = EXPERIMENT.preset("smoke")
    folder = RunFolder.create(tmp_path, EXPERIMENT.name, "smoke", config, "command")
    context = RunContext(folder, progress=False)
    report = EXPERIMENT.run(config, context)
    report.save(folder.path)
    loaded = load_report(folder.path)
    rows = loaded.tables["after training"]
    assert [(r["method"], r["k"]) for r in rows] == [
        (arm, k) for arm in config.arms for k in config.horizons
    ]
    assert {"reach", "training", "map", "why", "q_maps"} == set(loaded.pictures)
    for picture in loaded.pictures.values():
        assert (folder.path / picture.file).stat().st_size > 5000
    again = EXPERIMENT.run(config, context)
    assert [c.values for c in again.claims] == [c.values for c in report.claims]
    assert again.wall_seconds == pytest.approx(report.wall_seconds)  # nothing was trained again
