"""Simulators as transition models with a reset."""

from .base import Environment, EnvironmentState, as_model, true_model
from .gymnasium_ import from_gymnasium
from .registry import make, register_environment

__all__ = [
    "Environment",
    "EnvironmentState",
    "as_model",
    "from_gymnasium",
    "make",
    "register_environment",
    "true_model",
]
