"""Names of methods, agents, networks, objectives and layouts lead to the classes they stand for."""

from __future__ import annotations

import pytest

from jaxrl_rollouts.offline.agents import AGENTS
from jaxrl_rollouts.offline.methods import METHODS
from jaxrl_rollouts.pde.registries import LAYOUTS, NETWORKS, OBJECTIVES
from jaxrl_rollouts.registry import Registry

REGISTRIES = (AGENTS, METHODS, NETWORKS, OBJECTIVES)


@pytest.mark.parametrize(
    ("registry", "name"),
    [pytest.param(one, name, id=f"{one.kind}-{name}") for one in REGISTRIES for name in one],
)
def test_a_class_is_defined_where_its_name_leads(registry: Registry, name: str) -> None:
    """Else a saved file, which names the class by its module, cannot be read."""
    assert registry.name_of(registry[name]()) == name


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_sees_and_reads_files(name: str) -> None:
    layout = LAYOUTS[name]
    assert callable(layout.matches) and callable(layout.read)
