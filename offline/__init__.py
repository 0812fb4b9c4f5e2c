"""Offline model-based reinforcement learning: data, environments, world models, agents."""
