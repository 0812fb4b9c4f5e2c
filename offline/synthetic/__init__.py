"""Diffusion over transitions and windows: SynthER and policy-guided diffusion, and their
quality.
"""
