"""From a dataset and a method to a trained, evaluated and saved policy."""

from .study import METHODS, Budget, Outcome, small_budget, train

__all__ = ["METHODS", "Budget", "Outcome", "small_budget", "train"]
