"""Every method by its name. A method is one frozen dataclass in one file; see `offline.method`."""

from jaxrl_rollouts.registry import Registry

_OFFLINE = "jaxrl_rollouts.offline"
METHODS = Registry(
    "method",
    "jaxrl_rollouts.offline_methods",
    {
        "mopo": f"{_OFFLINE}.methods.mopo:Mopo",
        "combo": f"{_OFFLINE}.methods.combo:Combo",
        "neubay": f"{_OFFLINE}.methods.neubay:Neubay",
        "neubay_markov": f"{_OFFLINE}.methods.neubay:NeubayMarkov",
        "synther": f"{_OFFLINE}.methods.synther:Synther",
        "pgd": f"{_OFFLINE}.methods.pgd:Pgd",
        "planner": f"{_OFFLINE}.methods.planner:Planner",
        "iql": f"{_OFFLINE}.agents.iql_method:Iql",
    },
)
