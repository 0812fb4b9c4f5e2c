"""Files of trajectories in layouts other tools read and write."""

from .pdearena import read_pdearena, write_pdearena

__all__ = ["read_pdearena", "write_pdearena"]
