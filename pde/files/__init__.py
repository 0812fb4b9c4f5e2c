"""Files of trajectories in layouts other tools read and write."""

from .apebench import read_apebench, write_apebench
from .arrays import complete, from_arrays, read_arrays
from .layouts import read
from .pdearena import read_pdearena, write_pdearena
from .pdearena_flows import read_pdearena_flows, write_pdearena_flows
from .pdebench import read_pdebench
from .pdegym import read_pdegym
from .well import read_well
from .well_writer import write_well

__all__ = [
    "complete",
    "from_arrays",
    "read",
    "read_apebench",
    "read_arrays",
    "read_pdearena",
    "read_pdearena_flows",
    "read_pdebench",
    "read_pdegym",
    "read_well",
    "write_apebench",
    "write_pdearena",
    "write_pdearena_flows",
    "write_well",
]
