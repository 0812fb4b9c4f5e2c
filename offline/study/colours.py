"""Who is drawn in which colour: the same in every picture of agents."""

from __future__ import annotations

from collections.abc import Mapping

from jaxrl_rollouts.reports import pictures

AGENTS: Mapping[str, str] = {
    "base": "#D55E00",
    "oracle": "#009E73",
    "mopo": "#E69F00",
    "mobile": "#CC79A7",
    "ravl": "#0072B2",
    "neubay": "#56B4E9",
    "behaviour": "#777777",
    "bc": "#222222",
}
ARMS: Mapping[str, str] = {  # ablations of an agent, beside the agents
    "markov": "#882255",
    "quantile 0.999": "#c994c7",  # before what it begins with
    "quantile 0.99": "#8c6bb1",
    "quantile 1": "#1b7837",
    "quantile": "#000000",
    "no threshold": "#bf812d",
    "penalty": "#009E73",
}
COLOURS: Mapping[str, str] = {**AGENTS, **ARMS}


def colour(name: str) -> str:
    """The colour of what begins with a name above; others get one of the palette."""
    return pictures.colour(name, COLOURS)
