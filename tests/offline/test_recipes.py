"""Recipes: whole settings of every method, their presets, and what differs from the paper."""

from __future__ import annotations

import typing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pytest

from jaxrl_rollouts.config_json import from_json, to_json
from jaxrl_rollouts.configs import check, settings
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.offline.agents.cql import Cql, CqlConfig
from jaxrl_rollouts.offline.agents.iql import Iql
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset, Transitions
from jaxrl_rollouts.offline.job import facts_of, method_of, train
from jaxrl_rollouts.offline.main_job import Config
from jaxrl_rollouts.offline.matching import environment_of
from jaxrl_rollouts.offline.method import Job, Method
from jaxrl_rollouts.offline.methods import METHODS, MethodName
from jaxrl_rollouts.offline.methods.mobile import Mobile
from jaxrl_rollouts.offline.methods.model_based import ModelBased
from jaxrl_rollouts.offline.methods.mopo import Mopo
from jaxrl_rollouts.offline.methods.ravl import Ravl
from jaxrl_rollouts.offline.recipes import (
    PRESETS,
    benchmark_of,
    changed,
    differences,
    files_of,
    published,
    recipe,
)

MODEL_BASED = [name for name in METHODS if issubclass(METHODS[name], ModelBased)]


def pendulum() -> Dataset:
    rows = pendulum_mixed(jax.random.key(0), 600)
    return Dataset("pendulum-mixed", rows, "pendulum", Path("(made)"), "")


def of_width(name: str, kind: str, observations: int, actions: int) -> Dataset:
    flags = np.zeros(4, bool)
    states = np.zeros((4, observations), np.float32)
    rows = Transitions(states, np.zeros((4, actions)), np.zeros(4), states, flags, flags)
    return Dataset(name, rows, None, Path("(x)"), "", {"format": kind})


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_every_preset(name: str, preset: str) -> None:
    made = recipe(name, preset)
    check(made)
    assert type(made) is METHODS[name] and made.name == name
    assert len(settings(made)) <= 80
    config = Config(method=made)
    assert from_json(Config, to_json(config)) == config
    if preset == "paper":
        assert made == type(made)(), "a class's defaults are the published general settings"


def test_editors_know_the_names() -> None:
    assert typing.get_args(MethodName) == tuple(METHODS)


def test_every_file_of_recipes_says_its_source() -> None:
    for name in METHODS:
        own = dict(files_of(METHODS[name]))[f"{name}.toml"]
        assert len(own["source"]) > 20 and isinstance(own.get("differs", []), list)


def test_every_published_row_can_be_read() -> None:
    for name in METHODS:
        for benchmark, rows in dict(files_of(METHODS[name]))[f"{name}.toml"].items():
            if benchmark in ("d4rl", "neorl", "ogbench"):
                for row in rows.values():
                    check(changed(METHODS[name](), row))


def test_changes_come_on_top_and_are_strict() -> None:
    made = recipe("cql", "small", weight=10.0, hidden_dims=(8, 8))
    assert made == replace(recipe("cql", "small"), weight=10.0, hidden_dims=(8, 8))
    made = recipe("mopo", "small", rollouts={"length": 3})
    assert made.rollouts == replace(recipe("mopo", "small").rollouts, length=3)
    for changes, says in (
        ({"penalti": 1.0}, "did you mean penalty"),
        ({"agent": {"hiden": (8,)}}, "did you mean agent.hidden_dims"),
        ({"rollouts": {"lenght": 3}}, "did you mean rollouts.length"),
        ({"steps": "many"}, "steps: found 'many', expected int"),
    ):
        with pytest.raises(ConfigError, match=says):
            recipe("mopo", "small", **changes)
    with pytest.raises(ConfigError, match="preset: found 'smal'.*did you mean small"):
        recipe("mopo", "smal")


@pytest.mark.parametrize(
    ("method", "hint"),
    [
        ("ravel", "did you mean ravl"),
        ("RAVL", "did you mean ravl"),
        ("mopoo", "did you mean mopo"),
        ("dreamer", "one of base, mopo"),
    ],
)
def test_an_unknown_method_is_named(method: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        recipe(method)


def test_another_agent_keeps_what_both_have() -> None:
    """The small networks and rates of the preset; what only CQL has is its own default."""
    made = recipe("mopo", "small", agent={"cql": {"weight": 7.0}})
    assert isinstance(made.agent, CqlConfig) and made.agent.weight == 7.0
    assert (
        made.agent.hidden_dims == (64, 64) and made.agent.actor_lr == made.agent.critic_lr == 1e-3
    )
    assert made.agent.tau == 0.05 and made.agent.num_actions == CqlConfig().num_actions
    plain = recipe("mopo", "small", agent={"actor": {"kind": "plain"}})
    assert type(plain.agent) is type(Mopo().agent) and plain.agent.actor.kind == "plain"


def test_settings_say_everything_and_a_preset_beside_them_is_refused() -> None:
    data = pendulum()
    assert method_of(Ravl(), None, data, {}) == (Ravl(), "own settings")
    assert method_of(Ravl, None, data, {"steps": 9})[0] == Ravl(steps=9)
    assert method_of("ravl", None, data, {}) == (recipe("ravl", "small"), "small")
    with pytest.raises(ConfigError, match="preset: found 'paper', expected none beside settings"):
        method_of(Ravl(), "paper", data, {})
    with pytest.raises(ConfigError, match="method: found 'int', expected a name or settings of"):
        train(data, 3)  # type: ignore[arg-type]
    for wrong, setting in ((Ravl(steps=0), "steps"), (Cql(num_actions=0), "num_actions")):
        with pytest.raises(ConfigError, match=f"{setting}: found 0"):
            train(data, wrong)


@pytest.mark.parametrize(
    ("dataset", "want"),
    [
        (of_width("hopper-medium-v2", "d4rl", 11, 3), ("d4rl", "hopper-medium")),
        (of_width("hopper-medium-v2", "d4rl", 12, 3), None),  # another width: not D4RL's
        (of_width("hopper-medium-v2", "arrays", 11, 3), None),  # arrays under its name
        (of_width("hopper-medium-v2", "minari", 11, 3), None),
        (of_width("neorl/Hopper-v3-low-1000-train", "neorl", 12, 3), ("neorl", "hopper-low")),
        (of_width("neorl/Hopper-v3-low-1000-train", "neorl", 11, 3), None),
        (of_width("hopper-mixed", "d4rl", 11, 3), None),  # `data make`'s
        (of_width("antmaze-umaze-diverse-v2", "d4rl", 29, 8), ("d4rl", "antmaze-umaze-diverse")),
        ("hopper-medium-replay-v2", ("d4rl", "hopper-medium-replay")),
        ("antmaze-large-navigate-v0", ("ogbench", "antmaze-large-navigate")),
        ("puzzle-3x3-play-singletask-task4-v0", ("ogbench", "puzzle-3x3-play")),
        ("antmaze-medium-play-v2", ("d4rl", "antmaze-medium-play")),
        (of_width("scene-play-v0", "ogbench", 40, 5), ("ogbench", "scene-play")),
        (of_width("scene-play-v0", "arrays", 40, 5), None),
        ("my-own-set", None),
        (None, None),
    ],
)
def test_a_benchmark_is_known_by_format_and_width(dataset: Any, want: Any) -> None:
    assert benchmark_of(dataset) == want


def test_published_settings_are_those_of_the_dataset() -> None:
    hopper = of_width("hopper-medium-v2", "d4rl", 11, 3)
    row = published(Mopo, hopper)
    assert recipe("mopo", "paper", hopper) == changed(Mopo(), row) != Mopo()
    assert recipe("mopo", "paper", hopper) == recipe("mopo", "paper", "hopper-medium-v2")
    wider = of_width("hopper-medium-v2", "d4rl", 12, 3)
    assert recipe("mopo", "paper", wider) == recipe("mopo", "paper", None) == Mopo()
    assert recipe("mopo", "small", hopper) == recipe("mopo", "small"), "presets are of no dataset"


def test_a_set_without_published_settings_is_noted() -> None:
    data = pendulum()
    env, method = environment_of(data), recipe("mopo", "paper", data)
    assert "pendulum-mixed is not in a benchmark" in facts_of(data, method, Job(), env, "paper")[-1]
    assert not any("benchmark" in f for f in facts_of(data, method, Job(), env, "small"))


def test_what_differs_from_the_paper_is_listed() -> None:
    code = differences(Mopo(), None)
    assert not any("(paper" in line for line in code)
    lines = differences(Mopo(penalty=2.0, steps=7_500), None)
    assert lines == ("steps 7,500 (paper 3,000,000)", "penalty 2.0 (paper 1.0)", *code)
    assert any("order of a step" in line for line in differences(Mobile(), None))
    hopper = "hopper-medium-v2"
    assert "penalty 9.0 (paper 5.0)" in differences(
        replace(recipe("mopo", "paper", hopper), penalty=9.0), hopper
    )


def test_the_long_presets_critics_come_to_rest() -> None:
    """Forty time constants `n tau (1 - gamma)` of what rolls a world model."""
    for name in MODEL_BASED:
        method = recipe(name, "long")
        assert method.steps * method.agent.tau * (1 - method.agent.discount) == pytest.approx(40)


@dataclass(frozen=True, kw_only=True)
class Cautious(Mopo):
    """A third party's: MOPO, whose file of recipes it has none of its own of."""

    name: ClassVar[str] = "cautious"
    caution: float = 2.0


def test_a_subclass_has_the_presets_of_its_bases_and_not_its_published_rows() -> None:
    assert [name for name, _ in files_of(Cautious)] == ["model_based.toml", "mopo.toml"]
    assert published(Cautious, "hopper-medium-v2") == {}

    class Odd(Method):
        name = "odd"

    assert files_of(Odd) == []


def test_a_rate_that_falls_over_the_steps_fixes_the_length() -> None:
    assert Mopo().fixed_length() and not recipe("mopo", "small").fixed_length()
    assert Iql().fixed_length() and not Iql(cosine=False).fixed_length()


def test_nothing_is_trained_towards_a_floor_above_all_that_can_be_earned() -> None:
    """MOBILE's published floor of 0 is for rewards that are positive; pendulum's are costs."""
    costs = pendulum()
    rows = costs.transitions
    paid = replace(costs, transitions=rows._replace(rewards=rows.rewards + 20))
    says = r"agent.min_target: found 0.0, expected less than -.*pendulum-mixed"
    with pytest.raises(ConfigError, match=says):
        train(costs, Mobile())
    Mobile().check_dataset(paid)
    for preset in ("smoke", "small", "long"):
        recipe("mobile", preset).check_dataset(costs)


def test_no_setting_is_without_a_description() -> None:
    from jaxrl_rollouts.cli.shown import descriptions

    def missing(config: Any, path: str = "") -> list[str]:
        texts, found = descriptions(type(config)), []
        for field in fields(config):
            value = getattr(config, field.name)
            if hasattr(value, "__dataclass_fields__"):
                found += missing(value, f"{path}{field.name}.")
            elif not texts.get(field.name):
                found.append(path + field.name)
        return found

    for name in METHODS:
        assert not missing(METHODS[name]()), name
