"""The benchmark runs and counts right; how fast anything is, no test asks."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from fixtures import SMOKE, smoke

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.experiments.benchmarks.speed import (
    ACTIONS,
    OBSERVATIONS,
    Config,
    random_rows,
    update_operations,
)
from jaxrl_rollouts.offline.agents.sac import SacConfig, make_sac
from jaxrl_rollouts.offline.data import take_rows, to_device
from jaxrl_rollouts.reports.report import load_report


@pytest.mark.slow
def test_speed_measures_and_compiles_once(tmp_path: Path) -> None:
    report = load_report(smoke("speed", tmp_path))
    (row,) = report.tables["gradient steps per second"]
    assert row["updates/s"] > 0
    assert row["compile s"] > 0.1
    assert row["second call compiles s"] < 0.05
    assert [r["horizon"] for r in report.tables["rollout transitions per second"]] == [1, 5]
    (true,) = report.tables["true environments, steps per second with a policy"]
    assert true["copies"] == 64 and true["steps/s"] > 100


def test_a_missing_peer_is_said_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "speed", *SMOKE, "--peer-python", "no/python", "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "--peer-python: found 'no/python'" in capsys.readouterr().err


@pytest.mark.parametrize(("width", "critics"), [(64, 2), (256, 10)])
def test_operations_are_those_of_the_program(width: int, critics: int) -> None:
    """Counted by hand from the passes against XLA's count, which has the elementwise ones too."""
    config = Config(batch=128)
    agent = make_sac(
        SacConfig(num_critics=critics, hidden_dims=(width,) * config.layers),
        OBSERVATIONS,
        ACTIONS,
    )
    batch = to_device(take_rows(random_rows(200), jnp.arange(128)))
    state = jax.eval_shape(agent.init, jax.random.key(0))
    lowered = jax.jit(agent.update).lower(state, jax.random.key(1), batch)
    counted = lowered.compile().cost_analysis()["flops"]
    assert update_operations(config, width, critics) == pytest.approx(counted, rel=0.2)
