"""Experiments on agents that learn without a world model, offline and online."""
