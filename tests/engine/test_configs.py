from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_rollouts import plugins
from jaxrl_rollouts.config_json import from_json, read, to_json
from jaxrl_rollouts.configs import (
    check,
    did_you_mean,
    fraction,
    layers,
    number,
    positive,
    settings,
    step_size,
)
from jaxrl_rollouts.errors import ConfigError


@dataclass(frozen=True)
class Agent:
    learning_rate: float = 3e-4
    num_critics: int = 10
    hidden: tuple[int, ...] = (256, 256)
    kind: Literal["sac", "edac"] = "sac"

    def validate(self) -> None:
        if self.num_critics < 1:
            raise ConfigError("num_critics", self.num_critics, "at least 1")


@dataclass(frozen=True)
class Budget:
    """`validate` divides by what its range keeps from zero."""

    seeds: int = positive(2)
    every: int = positive(5)
    updates: int = 10

    def validate(self) -> None:
        if self.updates % self.every:
            raise ConfigError("every", self.every, f"a divisor of {self.updates}")


@dataclass(frozen=True)
class Threshold:
    level: float


@dataclass(frozen=True)
class Config:
    task: str
    agent: Agent = field(default_factory=Agent)
    horizon: int | None = None
    stop: Threshold | None = None
    pair: tuple[int, float] = (1, 2.0)
    weights: Mapping[str, float] = field(default_factory=dict)
    folder: Path = Path("data")
    on: bool = True
    names: list[str] = field(default_factory=list)


@given(
    st.builds(
        Config,
        task=st.text(),
        agent=st.builds(
            Agent,
            learning_rate=st.floats(allow_nan=False),
            num_critics=st.integers(1, 10**12),
            hidden=st.lists(st.integers(), max_size=4).map(tuple),
            kind=st.sampled_from(["sac", "edac"]),
        ),
        horizon=st.none() | st.integers(),
        stop=st.none() | st.builds(Threshold, st.floats(allow_nan=False)),
        pair=st.tuples(st.integers(), st.floats(allow_nan=False)),
        weights=st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=3),
        folder=st.just(Path("a/b")),
        on=st.booleans(),
        names=st.lists(st.text(), max_size=3),
    )
)
def test_any_config_survives(config: Config) -> None:
    back = read(Config, json.loads(json.dumps(to_json(config), allow_nan=False)))
    assert back == config


def test_nan_survives() -> None:
    back = read(Threshold, json.loads(json.dumps(to_json(Threshold(math.nan)))))
    assert math.isnan(back.level)


def changed(**changes: Any) -> dict[str, Any]:
    return {**to_json(Config("hopper")), **changes}


BAD = {
    "unknown key": (changed(hoirzon=3), "run.json: hoirzon", "did you mean horizon?"),
    "nested unknown": (changed(agent={"num_critic": 1}), "agent.num_critic", "num_critics"),
    "missing": ({}, "task: found 'nothing', expected str", ""),
    "string for int": (changed(horizon="5"), "horizon: found '5'", "int or null"),
    "float for int": (changed(agent={"num_critics": 1.5}), "agent.num_critics", "expected int"),
    "bool for int": (changed(horizon=True), "horizon: found True", "int or null"),
    "int for bool": (changed(on=1), "on: found 1", "expected bool"),
    "bool for float": (changed(agent={"learning_rate": True}), "agent.learning_rate", "float"),
    "word for float": (changed(agent={"learning_rate": "big"}), "learning_rate", "float"),
    "null": (changed(task=None), "task: found None", "expected str"),
    "literal": (changed(agent={"kind": "edacc"}), "agent.kind", "did you mean edac?"),
    "literal type": (changed(agent={"kind": 3}), "agent.kind", "one of sac, edac"),
    "no object": (changed(agent=[1]), "agent: found [1]", "settings of Agent"),
    "top level": ([], "run.json: found []", "settings of Config"),
    "tuple length": (changed(pair=[1]), "pair: found [1]", "2 values"),
    "tuple item": (changed(pair=["a", 1.0]), "pair[0]: found 'a'", "expected int"),
    "list item": (changed(names=["a", 3]), "names[1]: found 3", "expected str"),
    "no list": (changed(names="abc"), "names: found 'abc'", "list[str]"),
    "mapping": (changed(weights=[1.0]), "weights", "Mapping[str, float]"),
    "mapping value": (changed(weights={"a": "b"}), "weights.a: found 'b'", "expected float"),
    "path": (changed(folder=3), "folder: found 3", "expected Path"),
    "inside an optional": (changed(stop={"levle": 1.0}), "stop.levle", "did you mean stop.level?"),
    "refused by validate": (changed(agent={"num_critics": 0}), "found 0", "at least 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_is_one_line_that_names_the_setting(case: str) -> None:
    data, setting, hint = BAD[case]
    with pytest.raises(ConfigError) as caught:
        from_json(Config, data, "run.json")
    message = str(caught.value)
    assert setting in message and hint in message
    assert "\n" not in message
    assert caught.value.exit_code == 2


def test_check_reaches_nested_configs() -> None:
    check(Config("hopper"))
    with pytest.raises(ConfigError, match="^agent.num_critics: found 0, expected at least 1$"):
        check(Config("hopper", agent=Agent(num_critics=0)))
    with pytest.raises(ConfigError, match="^study.agent.num_critics: found 0"):
        check(Config("hopper", agent=Agent(num_critics=0)), "study")


def test_what_a_file_leaves_out_keeps_its_value() -> None:
    base = Config("hopper", Agent(num_critics=3), stop=Threshold(1.0), weights={"a": 1.0})
    found = read(Config, {"agent": {"learning_rate": 1}, "stop": {}}, "x", base)
    agent = dataclasses.replace(base.agent, learning_rate=1.0)
    assert found == dataclasses.replace(base, agent=agent)
    assert read(Config, {"stop": None}, "x", base).stop is None
    with pytest.raises(ConfigError, match="x: num_critics: .*did you mean agent.num_critics?"):
        read(Config, {"num_critics": 3}, "x", base)


def test_settings_are_the_leaves_by_dotted_name() -> None:
    flat = settings(Config("hopper", stop=Threshold(1.0)))
    assert flat["agent.num_critics"] == 10 and flat["stop.level"] == 1.0
    assert flat["horizon"] is None and "agent" not in flat


def test_what_json_cannot_carry_is_refused() -> None:
    with pytest.raises(TypeError, match="found a object"):
        to_json(Config(object()))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dataclass instance"):
        to_json(Config)


def test_did_you_mean() -> None:
    assert did_you_mean("ofline", ["offline", "online"]) == "did you mean offline?"
    assert did_you_mean("zzz", ["offline"]) == ""


def test_ranges_are_declared_with_the_fields() -> None:
    assert Budget() == Budget(seeds=2, every=5) == from_json(Budget, {})
    check(Budget())
    for wrong, named in [
        ({"seeds": 0}, "seeds: found 0, expected at least 1"),
        ({"every": 0}, "every: found 0, expected at least 1"),
        ({"every": 3}, "every: found 3, expected a divisor of 10"),
    ]:
        with pytest.raises(ConfigError, match=named):
            check(Budget(**wrong))
        with pytest.raises(ConfigError, match=named):
            from_json(Budget, wrong)


@dataclasses.dataclass(frozen=True)
class Ranged:
    rate: float = step_size(1e-3)
    share: float = fraction(0.5)
    hidden: tuple[int, ...] = layers((8, 8))
    seed: int = 0
    limit: int | None = positive(None)
    discount: float = number(0.99, least=0, below=1)
    free: float = 0.0
    count: int = 1
    pairs: tuple[tuple[float, ...], ...] = ((0.0,),)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "good", "bad", "expected"),
    [
        ("rate", (1, 1e-9), (0, -1, 1.1, 1e30, NAN, INF), "in (0, 1]"),
        ("share", (0, 1.0), (-1e-9, 2, NAN), "in [0, 1]"),
        ("hidden", ((1,), (3, 3)), ((), (0,), (8, -3), (10**20,)), "at least one layer"),
        ("seed", (0, 2**32 - 1), (-1, 2**32, 10**23), "from 0 to 4294967295"),
        ("limit", (None, 1, 2**31 - 1), (0, -1, 2**31), "at least 1"),
        ("discount", (0, 0.999), (1, -0.1, NAN), "in [0, 1)"),
        ("free", (-1e30, 0), (NAN, INF, -INF), "a finite number"),
        ("count", (-5, 2**31 - 1), (2**31, -(10**20)), "a number below 2,147,483,648"),
        ("pairs", (((1.0,), ()),), (((1.0,), (0.0, NAN)),), "a finite number"),
    ],
)
def test_numbers_have_ranges(name: str, good: tuple, bad: tuple, expected: str) -> None:
    for value in good:
        check(Ranged(**{name: value}))
    always = ("a finite number", "a number below 2,147,483,648", expected)
    for value in bad:
        with pytest.raises(ConfigError, match=f"^{name}: found ") as caught:
            check(Ranged(**{name: value}))
        assert any(text in str(caught.value) for text in always)
    with pytest.raises(ConfigError) as caught:
        check(Ranged(**{name: bad[0]}), "a.b")
    assert str(caught.value).startswith(f"a.b.{name}: found ")
    assert expected in str(caught.value) or "finite" in str(caught.value)


def test_every_setting_of_every_experiment_refuses_what_is_no_size() -> None:
    """Not a number, infinite or beyond 32 bits: in whatever setting it stands."""
    for name in plugins.names(plugins.EXPERIMENTS):
        experiment = plugins.load_experiment(name)
        flat = settings(experiment.preset(experiment.default_preset))
        for dotted, value in flat.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            for wrong in (10**20,) if isinstance(value, int) else (NAN, INF):
                changed = put(experiment.preset(experiment.default_preset), dotted, wrong)
                with pytest.raises(ConfigError):
                    check(changed)


def put(config: Any, dotted: str, value: Any) -> Any:
    first, _, rest = dotted.partition(".")
    inner = put(getattr(config, first), rest, value) if rest else value
    return dataclasses.replace(config, **{first: inner})


@dataclass(frozen=True)
class Choices:
    """One field of every kind of type that is checked."""

    kind: Literal["wide", "deep"] = "wide"
    maybe: Literal["wide", "deep"] | None = None
    each: tuple[Literal["wide", "deep"], ...] = ()
    pair: tuple[float, int] = (0.5, 1)
    steps: int = 1
    rate: float = 0.1
    least: float | None = None
    learned: bool = False
    name: str = "a"
    inner: Mapping[str, Agent] = field(default_factory=dict)
    members: tuple[Agent, ...] = ()


@pytest.mark.parametrize(
    ("wrong", "setting", "expected"),
    [
        ({"kind": "wid"}, "kind", "one of wide, deep"),
        ({"maybe": "shallow"}, "maybe", "one of wide, deep"),
        ({"each": ("wide", "flat")}, "each", "one of wide, deep"),
        ({"pair": (0.5, 1.5)}, "pair", "a whole number"),
        ({"steps": 2.5}, "steps", "a whole number"),
        ({"steps": True}, "steps", "a whole number"),
        ({"rate": "0.1"}, "rate", "a number"),
        ({"least": "none"}, "least", "a number"),
        ({"learned": "no"}, "learned", "true or false"),
        ({"learned": 1}, "learned", "true or false"),
        ({"name": 3}, "name", "a text"),
    ],
)
def test_a_setting_of_another_type_or_choice_is_refused(
    wrong: dict, setting: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(Choices(**wrong))
    assert caught.value.setting == setting and expected in str(caught.value)


def test_numbers_of_numpy_and_what_is_left_out_are_taken() -> None:
    check(Choices(steps=np.int64(3), rate=np.float32(0.5), least=None))
    check(Choices(rate=1, maybe="deep", each=("wide", "deep")))


def test_what_a_mapping_or_a_tuple_holds_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"inner\.a\.num_critics: "):
        check(Choices(inner={"a": Agent(num_critics=0)}))
    with pytest.raises(ConfigError, match=r"members\[1\]\.kind: "):
        check(Choices(members=(Agent(), Agent(kind="sca"))))  # type: ignore[arg-type]
