"""What tests of the training loop share: an empty run, and a state as it is handed over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder


@dataclass(frozen=True)
class Nothing:
    pass


def run_context(tmp_path: Path, **options: Any) -> RunContext:
    folder = RunFolder.create(tmp_path, "toy", "test", Nothing(), "nothing")
    return RunContext(folder, progress=False, **options)


def given(state: Any, data: Any) -> Any:
    """An `init` that starts from what it is handed."""
    return state
