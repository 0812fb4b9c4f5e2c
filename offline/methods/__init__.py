"""Every method by its name. A method is one frozen dataclass in one file; see `offline.method`.

Another package announces its own in the entry-point group `jaxrl_rollouts.methods`.
"""

from typing import Literal

from jaxrl_rollouts.registry import Registry

_OFFLINE = "jaxrl_rollouts.offline"
# The names of `METHODS`, for editors.
MethodName = Literal[
    "base",
    "mopo",
    "mobile",
    "ravl",
    "combo",
    "morel",
    "rambo",
    "mobrac",
    "leq",
    "admpo",
    "cvar",
    "bc",
    "sac",
    "edac",
    "cql",
    "td3_bc",
    "iql",
    "rebrac",
    "td3_awr",
    "fql",
    "ifql",
    "neubay",
    "neubay_markov",
    "synther",
    "pgd",
    "planner",
    "online_sac",
]
METHODS = Registry(
    "method",
    "jaxrl_rollouts.methods",
    {
        "base": f"{_OFFLINE}.methods.base:Base",
        "mopo": f"{_OFFLINE}.methods.mopo:Mopo",
        "mobile": f"{_OFFLINE}.methods.mobile:Mobile",
        "ravl": f"{_OFFLINE}.methods.ravl:Ravl",
        "combo": f"{_OFFLINE}.methods.combo:Combo",
        "morel": f"{_OFFLINE}.methods.morel:Morel",
        "rambo": f"{_OFFLINE}.methods.rambo:Rambo",
        "mobrac": f"{_OFFLINE}.methods.mobrac:Mobrac",
        "leq": f"{_OFFLINE}.methods.leq:Leq",
        "admpo": f"{_OFFLINE}.methods.admpo:Admpo",
        "cvar": f"{_OFFLINE}.methods.cvar:Cvar",
        "bc": f"{_OFFLINE}.agents.bc:Bc",
        "sac": f"{_OFFLINE}.agents.sac:Sac",
        "edac": f"{_OFFLINE}.agents.sac:Edac",
        "cql": f"{_OFFLINE}.agents.cql:Cql",
        "td3_bc": f"{_OFFLINE}.agents.td3_bc:Td3Bc",
        "iql": f"{_OFFLINE}.agents.iql:Iql",
        "rebrac": f"{_OFFLINE}.agents.rebrac:Rebrac",
        "td3_awr": f"{_OFFLINE}.agents.td3_awr:Td3Awr",
        "fql": f"{_OFFLINE}.agents.fql:Fql",
        "ifql": f"{_OFFLINE}.agents.ifql:Ifql",
        "neubay": f"{_OFFLINE}.methods.neubay:Neubay",
        "neubay_markov": f"{_OFFLINE}.methods.neubay:NeubayMarkov",
        "synther": f"{_OFFLINE}.methods.synther:Synther",
        "pgd": f"{_OFFLINE}.methods.pgd:Pgd",
        "planner": f"{_OFFLINE}.agents.planner:Planner",
        "online_sac": f"{_OFFLINE}.online.learner:OnlineSac",
    },
)
