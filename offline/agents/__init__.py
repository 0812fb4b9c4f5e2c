"""Agents that learn from transitions: SAC-N and EDAC, TD3+BC, IQL, ReBRAC, TD3-AWR, FQL, IFQL."""

from jaxrl_rollouts.registry import Registry

_HERE = "jaxrl_rollouts.offline.agents"
# Settings of an agent: a frozen dataclass with `discount` and `make` (see `method.AgentConfig`).
AGENTS = Registry(
    "agent",
    "jaxrl_rollouts.agents",
    {
        "bc": f"{_HERE}.bc:BcConfig",
        "sac": f"{_HERE}.sac:SacConfig",
        "edac": f"{_HERE}.sac:EdacConfig",
        "cql": f"{_HERE}.cql:CqlConfig",
        "td3_bc": f"{_HERE}.td3_bc:Td3BcConfig",
        "iql": f"{_HERE}.iql:IqlConfig",
        "rebrac": f"{_HERE}.rebrac:RebracConfig",
        "td3_awr": f"{_HERE}.td3_awr:Td3AwrConfig",
        "fql": f"{_HERE}.fql:FqlConfig",
        "ifql": f"{_HERE}.ifql:IfqlConfig",
        "leq": f"{_HERE}.leq:LeqConfig",
        "planner": f"{_HERE}.planner:PlannerConfig",
    },
)
