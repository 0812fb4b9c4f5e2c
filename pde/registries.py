"""Names of networks, objectives and layouts of files; nothing is imported before it is needed.

Other packages bring theirs by entry points, as `module:Class`:

    [project.entry-points."jaxrl_rollouts.networks"]     # dataclass with make(FieldShape)
    mine = "my_package:MyNetwork"
    [project.entry-points."jaxrl_rollouts.objectives"]   # dataclass with make(FieldNetwork, Scale)
    [project.entry-points."jaxrl_rollouts.layouts"]  # object: matches(path, file), read(path)
"""

from __future__ import annotations

from jaxrl_rollouts.field_networks import NETWORKS as NETWORKS
from jaxrl_rollouts.registry import Registry

_PDE = "jaxrl_rollouts.pde"

OBJECTIVES = Registry(
    "objective",
    "jaxrl_rollouts.objectives",
    {
        "mse": f"{_PDE}.objectives.mse:Mse",
        "pushforward": f"{_PDE}.objectives.pushforward:Pushforward",
        "unrolled": f"{_PDE}.objectives.unrolled:Unrolled",
        "sobolev": f"{_PDE}.objectives.sobolev:Sobolev",
        "correction": f"{_PDE}.objectives.correction:Correction",
        "refiner": f"{_PDE}.objectives.refiner:Refiner",
        "crps": f"{_PDE}.objectives.crps:Crps",
    },
)
LAYOUTS = Registry(
    "layout",
    "jaxrl_rollouts.layouts",
    {
        "arrays": f"{_PDE}.files.layouts:ARRAYS",
        "apebench": f"{_PDE}.files.layouts:APEBENCH",
        "pdearena": f"{_PDE}.files.layouts:PDEARENA",
        "pdearena_flows": f"{_PDE}.files.layouts:PDEARENA_FLOWS",
        "well": f"{_PDE}.files.layouts:WELL",
        "pdegym": f"{_PDE}.files.layouts:PDEGYM",
        "pdebench": f"{_PDE}.files.layouts:PDEBENCH",
    },
)
