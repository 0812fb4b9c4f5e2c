"""Files of trajectories in layouts other tools read and write."""

from .apebench import read_apebench as read_apebench
from .apebench import write_apebench as write_apebench
from .arrays import complete as complete
from .arrays import from_arrays as from_arrays
from .arrays import read_arrays as read_arrays
from .layouts import read as read
from .pdearena import read_pdearena as read_pdearena
from .pdearena import write_pdearena as write_pdearena
from .pdearena_flows import read_pdearena_flows as read_pdearena_flows
from .pdearena_flows import write_pdearena_flows as write_pdearena_flows
from .pdebench import read_pdebench as read_pdebench
from .pdegym import read_pdegym as read_pdegym
from .well import read_well as read_well
from .well_writer import write_well as write_well
