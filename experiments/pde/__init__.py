"""Experiments on fields."""
