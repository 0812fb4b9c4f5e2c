"""The planner of `agents.planner` as a method: an agent on windows of the dataset's episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..agents.model_free import ModelFree
from ..agents.plan_rows import PlanRows
from ..agents.planner import PlannerConfig, rows_for
from ..data import Transitions


@dataclass(frozen=True, kw_only=True)
class Planner(PlannerConfig, ModelFree):
    """The planner's settings."""

    name: ClassVar[str] = "planner"

    def rows(self, transitions: Transitions) -> PlanRows:
        return rows_for(self, transitions)
