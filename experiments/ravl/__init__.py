"""Experiments on the edge of reach."""
