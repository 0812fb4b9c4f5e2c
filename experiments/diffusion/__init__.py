"""Experiments on synthetic experience by diffusion."""
