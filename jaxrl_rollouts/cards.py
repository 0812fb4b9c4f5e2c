"""The card of a published object: kind, returns, training data, limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .record.files import file_sha256, read_json
from .reports.text import format_number

# Of facts: in this order, with these words.
WORDS = {
    "method": "method",
    "objective": "objective",
    "network": "network",
    "dataset": "dataset",
    "data": "data",
    "sha256": "sha256 of the data",
    "data_sha256": "sha256 of the data",
    "environment": "environment",
    "rows": "rows",
    "seeds": "training seeds",
    "observation_size": "observation entries",
    "action_size": "action entries",
    "channels": "channels",
    "points": "points",
    "dt": "time step",
    "parameters": "parameters of the training data",
    "extent": "lengths of the training data",
}
USE = {
    "policy": 'policy = jr.offline.load_policy("hf://{name}")\naction = policy(observation)',
    "world models": (
        "from jaxrl_rollouts.offline.worlds.saved import load_worlds\n"
        'worlds = load_worlds("hf://{name}", data)      # the data they were fitted to'
    ),
    "emulator": 'emulator = jr.pde.load_emulator("hf://{name}")\nfields = emulator.roll(u0, 100)',
    "tape": 'data = jr.offline.load("hf://{name}")',
}
LIMITS = {
    "policy": (
        "Trained on the data above only; in states outside the data it is untested. Returns "
        "are means over few episodes in the named environment, where there is one."
    ),
    "world models": "Of these data only: any other rows are refused by their sha256.",
    "emulator": (
        "Bound to its grid, boundaries and time step. Outside of the parameters above it is not "
        "tested, and errors grow along a rollout."
    ),
    "tape": "Start states and actions, which MuJoCo replays; another MuJoCo computes other states.",
}


def card(source: Path, staged: Path, name: str, kinds: Sequence[str], licence: str = "") -> str:
    """Markdown with the hub's header.

    Args:
        source: a run's folder, for its command, its data and its conclusion; or what was saved.
        staged: the files to publish.
        name: name of the repository.
        kinds: kinds of its contents.
        licence: licence in the header; "" leaves it out.
    """
    tags = ["jax", "neural-pde" if "emulator" in kinds else "offline-reinforcement-learning"]
    head = ["---", "library_name: jaxrl-rollouts", f"tags: [{', '.join(tags)}]"]
    head += [f"license: {licence}"] if licence else []
    parts = ["\n".join([*head, "---"]), f"# {name.partition('/')[2]}"]
    what = ", ".join(kinds)
    parts.append(f"{what.capitalize()} of `jaxrl-rollouts`: numbers (safetensors) and JSON only.")
    parts += _run(source)
    for file in sorted(staged.rglob("*.json")):
        parts += [f"## {file.relative_to(staged).parent.as_posix()}".replace("## .", "## Facts")]
        parts += [_table(_facts(read_json(file, "a repository")))]
    tapes = [f"`{path.name}`: sha256 {file_sha256(path)}" for path in staged.glob("*.tape")]
    parts += ["\n".join(tapes)] if tapes else []
    code = "\n".join(USE[kind].format(name=name) for kind in kinds)
    parts += ["## Use", f"```python\nimport jaxrl_rollouts as jr\n\n{code}\n```"]
    parts += ["## Limits", "\n".join(f"- {LIMITS[kind]}" for kind in kinds)]
    return "\n\n".join(parts) + "\n"


def _run(source: Path) -> list[str]:
    """Conclusion, command and data of a run's folder; nothing of another."""
    parts: list[str] = []
    if (source / "report.json").is_file():
        from .reports.report import load_report

        report = load_report(source)
        parts += [_plain(" ".join(report.conclusion))] if report.conclusion else []
        numbers = [(key, _value(value.values)) for key, value in report.numbers.items()]
        parts += [_table(numbers)] if numbers else []
    if (source / "run.json").is_file():
        record = read_json(source / "run.json", "a run folder")
        command = str(record.get("command") or "").replace("`", "")
        parts += [f"Made by `{command}`."] if command else []
        held = {k: v for k, v in record.get("data", {}).items() if isinstance(v, Mapping)}
        parts += [f"Data {_plain(k)}: sha256 {_plain(v.get('sha256'))}." for k, v in held.items()]
    return parts


def _facts(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, word in WORDS.items():
        if facts.get(key) not in (None, "", [], {}):
            yield word, _value(facts[key])
    if facts.get("returns") is not None:
        yield "return of each training seed", _value(facts["returns"])
    if facts.get("selection"):
        yield "selection", _value(facts["selection"])
    versions = facts.get("versions")
    if isinstance(versions, Mapping):
        yield "versions", ", ".join(f"{k} {v}" for k, v in versions.items() if isinstance(v, str))


def _table(rows: Any) -> str:
    lines = [f"| {_plain(key)} | {_plain(value)} |" for key, value in rows]
    return "\n".join(["| | |", "|---|---|", *lines])


def _value(value: Any) -> str:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_value(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return format_number(value) if isinstance(value, float) else str(value)


def _plain(text: Any) -> str:
    """One line without what Markdown would take for a table, code or HTML."""
    return re.sub(r"[|`<>\s]+", " ", str(text)).strip()
