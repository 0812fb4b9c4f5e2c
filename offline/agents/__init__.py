"""Actor-critics that learn from transitions: SAC-N and EDAC, TD3+BC, IQL, ReBRAC; a planner."""

from jaxrl_rollouts.registry import Registry

_HERE = "jaxrl_rollouts.offline.agents"
# Settings of an agent: a frozen dataclass with `discount` and `make(S, A) -> Agent`.
AGENTS = Registry(
    "agent",
    "jaxrl_rollouts.agents",
    {
        "sac": f"{_HERE}.sac:SacConfig",
        "cql": f"{_HERE}.cql:CqlConfig",
        "iql": f"{_HERE}.iql:IqlConfig",
    },
)
