"""What a study solved is read again as long as it is what was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.errors import Interrupted
from jaxrl_rollouts.pde.generate import Simulation
from jaxrl_rollouts.pde.train import StudyConfig, prepare
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder
from jaxrl_rollouts.record.interrupts import StopFlag

SOLVED = Simulation(trajectories=2, points=16, frames=4, burn_in=2, chunk=2)
STUDY = StudyConfig(train=SOLVED, test=replace(SOLVED, seed=1), points=16, steps=3, sampled_steps=3)


def test_damaged_fields_are_solved_again(tmp_path: Path) -> None:
    stop = StopFlag()
    context = RunContext(RunFolder.at(tmp_path / "run", "ks"), progress=False, stop=stop)
    stop.request()
    with pytest.raises(Interrupted, match="while solving; go on with: jaxrl-rollouts resume"):
        prepare(STUDY, context)
    stop.requested = False
    first = prepare(STUDY, context)
    file = tmp_path / "run" / "data" / "ks_train.h5"
    time = file.stat().st_mtime_ns
    prepare(STUDY, context)
    assert file.stat().st_mtime_ns == time
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.warns(UserWarning, match="ks_train.h5: damaged or not finished, solved again"):
        again = prepare(STUDY, context)
    np.testing.assert_array_equal(first.train.fields, again.train.fields)
