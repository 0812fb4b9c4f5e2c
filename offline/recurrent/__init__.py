"""Agents with a memory, and the tapes of timesteps that they learn from."""
