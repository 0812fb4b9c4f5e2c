"""External JSON and YAML texts, without ambiguous or unboundedly expanding content.

A key that is given twice, an alias and nesting deeper than `DEPTH` are refused. Numbers of YAML are
those of YAML 1.2: `010` is ten, `1e-4` a number and `1:30` a text.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEPTH = 50
_YES, _NO = "true|True|TRUE|yes|Yes|YES|on|On|ON", "false|False|FALSE|no|No|NO|off|Off|OFF"


def load_json(text: str) -> Any:
    """The data in a JSON text."""
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise ValueError(_too_deep()) from None
    level, depth = [data], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        if depth > DEPTH:
            raise ValueError(_too_deep())
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one)]
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice")
    return found


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _too_deep() -> str:
    return f"nested more than {DEPTH} levels deep"


def load_yaml(text: str) -> Any:
    """The data in a YAML text, with the numbers of YAML 1.2."""
    import yaml

    try:
        return yaml.load(text, _loader())  # noqa: S506
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _loader() -> Any:
    """A safe loader of YAML's own types. PyYAML takes a tenth of a second to import."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: dict[Any, Any] = {}
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if isinstance(event, yaml.AliasEvent):
                raise self.wrong(f"found the alias *{event.anchor}, expected its value", event)
            if getattr(event, "tag", None):
                raise self.wrong(f"found the tag {event.tag}, expected none", event)
            nests = not isinstance(event, yaml.ScalarEvent)
            self.depth += nests
            if self.depth > DEPTH:
                raise self.wrong(_too_deep(), event)
            node = super().compose_node(parent, index)
            self.depth -= nests
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    raise self.wrong(f"{key.value!r} is given twice", key)
                seen.add(key.value)
            found = super().construct_mapping(node, deep)
            if len(found) < len(node.value):
                raise self.wrong("a key is given twice, written in two ways", node)
            return found

        def wrong(self, what: str, at: Any) -> yaml.MarkedYAMLError:
            return yaml.MarkedYAMLError(problem=what, problem_mark=at.start_mark)

        def whole(self, node: Any) -> int:
            text = self.construct_scalar(node)
            return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))

    kinds = {
        "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        "bool": (rf"{_YES}|{_NO}", list("tTfFyYnNoO")),
        "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
        "float": (
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
            list("-+.0123456789"),
        ),
    }
    for kind, (pattern, first) in kinds.items():
        tag = f"tag:yaml.org,2002:{kind}"
        Loader.add_implicit_resolver(tag, re.compile(rf"(?:{pattern})\Z"), first)
    Loader.add_constructor("tag:yaml.org,2002:int", Loader.whole)
    return Loader
