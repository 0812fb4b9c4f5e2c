"""From a dataset and a method to a trained, evaluated and saved policy.

A method is a name, or its settings under the short names here: `train(data, Cql(weight=10.0))`.
"""

from ..agents.bc import BcConfig as Bc
from ..agents.cql import CqlConfig as Cql
from ..agents.iql import IqlConfig as Iql
from ..agents.planner import PlannerConfig as Planner
from ..agents.rebrac import RebracConfig as Rebrac
from ..agents.sac import EdacConfig as Edac
from ..agents.sac import SacConfig as Sac
from ..agents.td3_bc import Td3BcConfig as Td3Bc
from ..methods.base import Base
from ..methods.mobile import Mobile
from ..methods.mopo_old import Mopo
from ..methods.ravl import Ravl
from .budget import METHODS, Budget, long_budget, small_budget
from .imagined import ImaginedValue, imagined_value
from .outcome import Outcome
from .study import train

__all__ = [
    "METHODS",
    "Base",
    "Bc",
    "Budget",
    "Cql",
    "Edac",
    "ImaginedValue",
    "Iql",
    "Mobile",
    "Mopo",
    "Outcome",
    "Planner",
    "Ravl",
    "Rebrac",
    "Sac",
    "Td3Bc",
    "imagined_value",
    "long_budget",
    "small_budget",
    "train",
]
