"""Experiments on long-horizon Bayesian rollouts."""
