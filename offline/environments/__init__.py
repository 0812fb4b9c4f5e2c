"""Simulators as transition models with a reset."""

from .base import Environment, EnvironmentState, as_model, true_model
from .registry import make

__all__ = ["Environment", "EnvironmentState", "as_model", "make", "true_model"]
