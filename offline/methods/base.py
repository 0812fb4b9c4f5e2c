"""Base: model-based policy optimisation with no pessimism about the model (MBPO offline).

Janner et al. 2019, arXiv:1906.08253. Two critics and their minimum, as in SAC; neither the model's
uncertainty nor a diversity of critics enters. The control that other methods are compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .model_based import ModelBased


@dataclass(frozen=True, kw_only=True)
class Base(ModelBased):
    """MBPO on a dataset; no settings of its own."""

    name: ClassVar[str] = "base"
