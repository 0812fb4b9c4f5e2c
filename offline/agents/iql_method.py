"""IQL as a method: the agent of `iql`, on rows. (In the house these lines end `iql.py`.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .iql import IqlConfig
from .on_rows import ModelFree


@dataclass(frozen=True, kw_only=True)
class Iql(IqlConfig, ModelFree):
    """Implicit Q-learning on the rows of a dataset."""

    name: ClassVar[str] = "iql"
