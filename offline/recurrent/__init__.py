"""Agents with a memory, and the tapes of tokens that they learn from."""
