"""Every agent that learns from transitions alone, by its name or by its configuration.

Another package brings its own by an `AgentSpec` in the entry-point group `jaxrl_rollouts.agents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, make_dataclass, replace
from typing import TYPE_CHECKING, Any

from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.plugins import announced

from ..data import Transitions
from . import bc, cql, iql, planner, rebrac, sac, td3_bc
from .agent import Agent, AgentSpec

AgentConfig = Any  # the configuration of a registered agent
GROUP = "jaxrl_rollouts.agents"

AGENTS: Mapping[str, AgentSpec] = {
    "bc": bc.AGENT,
    "sac": sac.AGENT,
    "edac": sac.EDAC,
    "cql": cql.AGENT,
    "td3_bc": td3_bc.AGENT,
    "iql": iql.AGENT,
    "rebrac": rebrac.AGENT,
    "planner": planner.AGENT,
    **announced(GROUP, "agent"),
}

# One field for each agent's settings, so that all of them are options of the command line.
if TYPE_CHECKING:

    class AgentConfigs(Any):
        """Settings of single agents."""

else:
    AgentConfigs = make_dataclass(
        "AgentConfigs",
        [(name, spec.config, field(default_factory=spec.config)) for name, spec in AGENTS.items()],
        namespace={"__doc__": "Settings of single agents."},
        frozen=True,
    )


def agent_name(config: AgentConfig) -> str:
    """Which of `AGENTS` a configuration is of.

    Raises:
        ConfigError: settings of no agent.
    """
    for name, spec in AGENTS.items():
        if type(config) is spec.config:
            return name
    raise ConfigError("agent", type(config).__name__, f"settings of {', '.join(AGENTS)}")


def make_agent(config: AgentConfig, observation_size: int, action_size: int) -> Agent:
    """The agent of a configuration.

    Raises:
        ConfigError: settings of no agent, or one that is out of range.
    """
    return AGENTS[agent_name(config)].make(config, observation_size, action_size)


def rows_for(config: AgentConfig, transitions: Transitions) -> Any:
    """The dataset with what this agent needs besides; plain `Transitions` for most."""
    return AGENTS[agent_name(config)].rows(config, transitions)


def quick_agents(hidden: tuple[int, ...], rate: float = 1e-3) -> Any:
    """`AgentConfigs` with small networks and high learning rates, for a CPU."""

    def quick(config: Any) -> Any:
        names = {f.name for f in fields(config)}
        rates = {name: rate for name in names if name.endswith("_rate")}
        sizes: dict[str, Any] = {"hidden": hidden} if "hidden" in names else {}
        if "unet" in names:
            sizes |= {"horizon": 7, "unet": replace(config.unet, features=16, blocks=2)}
        return replace(config, **rates, **sizes)

    return AgentConfigs(**{name: quick(spec.config()) for name, spec in AGENTS.items()})
