"""Reading `jaxrl-rollouts run EXPERIMENT ...`: a preset, a file's settings, options on top."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..config_json import read
from ..configs import EARLIER, FLAT, check, settings, unknown
from ..errors import ConfigError
from ..foreign import code_in
from ..plugins import Experiment, ExperimentInfo, check_trusted
from ..registry import is_place
from . import parsing
from .files import read_settings
from .shown import (
    choices_of,
    merged,
    names_of_choices,
    option,
    options,
    positional,
    shown,
)

PROG = "jaxrl-rollouts"
# Options that change no number, and how many values each has.
WITHOUT_EFFECT = {"--progress": 0, "--no-progress": 0, "--out": 1, "--publish": 1, "--logger": 1}
WITHOUT_EFFECT |= {"--trust": sys.maxsize}


@dataclass(frozen=True)
class RunOptions:
    """Options of `run` that are not settings of the experiment.

    Attributes:
        preset: Named configuration to start from; a file's and single settings override it.
        config: Settings from a YAML or JSON file, or those of a run: its folder. Options override
            them.
        out: Folder to make the run folder in.
        publish: Also copy report and pictures to this folder, under the experiment's name.
        logger: Where metrics go, separated by commas: jsonl, csv, tensorboard, wandb.
        progress: Show progress, rate and time left.
        trust: Code that settings from a file may import, package.module:factory.
    """

    preset: str = ""
    config: Path | None = None
    out: Path = Path("runs")
    publish: Path | None = None
    logger: str = "jsonl"
    progress: bool = True
    trust: tuple[str, ...] = ()


def check_choices(listing: ExperimentInfo, arguments: Sequence[str]) -> dict[str, str]:
    """What was chosen of a listing's `choices`, by setting."""
    chosen = {}
    for name, choices in listing.choices.items():
        value = parsing.value_of(arguments, option(name))
        if value is not None and value not in choices and not is_place(value):
            raise unknown(option(name), value, choices)
        if value is not None:
            chosen[name] = value
    return chosen


def parse_run(experiment: Experiment, arguments: Sequence[str]) -> tuple[RunOptions, Any, str]:
    """Options, configuration, and the command line that gives the same numbers."""
    prog = f"{PROG} run {experiment.name}"
    chosen = check_choices(experiment, arguments)
    file, made_from, data = parsing.value_of(arguments, "--config"), None, None
    if file is not None:
        made_from, data = read_settings(Path(file), experiment.name)
    preset = parsing.value_of(arguments, "--preset")
    if preset is None:
        preset = experiment.default_preset
        if made_from is not None and made_from in experiment.presets:
            preset = made_from
    start = experiment.preset(preset)
    if experiment.begin is not None:
        start = experiment.begin(preset, lambda name: parsing.value_of(arguments, name))
    if data is not None:
        _check_code(data, str(file), arguments)
    base = start if data is None else read(type(start), data, str(file), start)
    _check_chosen(base, arguments, file)
    base = base if experiment.begin is not None else replace(base, **chosen)
    own = _own(shown(base), preset, names_of_choices(base), choices_of(base))
    known = options(own.settings)
    arguments = [_current(argument, known) for argument in arguments]
    _check_options(base, own, arguments, prog)
    description = _describe(experiment, preset, base)
    parsed = parsing.read(
        lambda: tyro.cli(
            type(own),
            default=own,
            args=list(arguments),
            prog=prog,
            description=description,
            config=(tyro.conf.AvoidSubcommands,),
        ),
        arguments,
        prog,
    )
    config = merged(base, parsed.settings)
    given = list(arguments)
    if data is not None:
        with contextlib.suppress(TypeError):
            begun = start_of(experiment, preset, config)
            given = ["--preset", preset, *as_options(config, begun, start)]
    return parsed.options, config, remaking_command(experiment.name, given)


def _current(argument: str, known: Container[str]) -> str:
    """An argument with the name that its option has now."""
    name, equals, value = argument.partition("=")
    before, dot, last = name.rpartition(".")
    last = last.lstrip("-").replace("-", "_")
    no = "no_" if last.startswith("no_") else ""
    new = no + EARLIER.get(last.removeprefix("no_"), "")
    there = option(f"{before.lstrip('-')}{dot}{new}")
    if name in known or there not in known:
        return argument
    print(f"note: {name} is now called {there}", file=sys.stderr)
    return f"{there}{equals}{value}"


def _check_code(data: Any, file: str, arguments: Sequence[str]) -> None:
    """`ConfigError` for a file that names code to import which the command line does not."""
    check_trusted(file, sorted(set(code_in(data)) - set(arguments)))


def _check_chosen(config: Any, arguments: Sequence[str], file: str | None) -> None:
    """`ConfigError` for a choice that is typed where a file's settings are of another."""
    for name, has in names_of_choices(config).items():
        typed_name = parsing.value_of(arguments, option(name))
        if file is not None and typed_name not in (None, has):
            raise ConfigError(option(name), typed_name, f"{has}, which {file} has settings of")


def _choice(name: str, known: Sequence[str]) -> Any:
    text = f"One of {', '.join(known)}; or FILE.py:CLASS, your own. Its settings are options."
    return tyro.conf.arg(name=name.replace("_", "-"), help=text)


def _own(
    visible: Any,
    preset: str,
    choices: Mapping[str, str] = {},
    known: Mapping[str, Sequence[str]] = {},
) -> Any:
    """Options and settings side by side, none of them in a group of its own."""
    flat = tyro.conf.arg(name="")
    named = make_dataclass(
        "Choices",
        [
            (n.replace(".", "__"), Annotated[str, _choice(n, known.get(n, []))], field(default=v))
            for n, v in choices.items()
        ],
    )
    made = make_dataclass(
        "Run",
        [
            (
                "options",
                Annotated[RunOptions, flat],
                field(default_factory=lambda: RunOptions(preset)),
            ),
            ("choices", Annotated[named, flat], field(default_factory=named)),
            ("settings", Annotated[type(visible), flat], field(default_factory=lambda: visible)),
        ],
        frozen=True,
    )
    return made()


def _check_options(base: Any, own: Any, arguments: Sequence[str], prog: str) -> None:
    """Raise `ConfigError` for an unknown option."""
    chosen = {option(name): str for name in names_of_choices(base)}
    run_options = options(shown(own.options)) | chosen
    known = {**options(own.settings), **run_options}
    for argument in filter(parsing.is_option, arguments):
        name = argument.partition("=")[0].replace("_", "-")
        if name in known or argument in ("-h", "--help"):
            continue
        items = (other for other in known if other not in chosen)
        if any(name.startswith(other + ".") for other in items):  # of an item of a list
            continue
        raise parsing.no_such_option(name, known, prog)


def _describe(experiment: Experiment, preset: str, base: Any) -> str:
    source = f" ({experiment.source})" if experiment.source else ""
    text = (
        f"{experiment.summary}{source}\n\n"
        f"Presets: {', '.join(experiment.presets)}; the defaults below are those of {preset}."
    )
    for name, chosen in names_of_choices(base).items():
        text += (
            f"\n\nSettings of {option(name)} {chosen} are among these; "
            f"`{option(name)} NAME --help` shows those of another."
        )
    return text


def check_options(config: Any) -> None:
    """`check`, but errors name settings as their options are typed."""
    try:
        check(config)
    except ConfigError as error:
        raise as_typed(error, config) from None


def as_typed(error: ConfigError, config: Any) -> ConfigError:
    """The error with the setting named as its option is typed, if it is about one."""
    for name in settings(config):
        if error.setting in (name, ungrouped(config, name)):
            return error.named(typed(config, name))
    return error


def ungrouped(config: Any, name: str) -> str:
    """A setting's dotted name without that of a flat group before it."""
    first, _, rest = name.partition(".")
    flat = {f.name for f in fields(config) if f.metadata.get(FLAT)}
    return rest if first in flat else name


def typed(config: Any, name: str) -> str:
    """A setting's option: without the name of a flat group before it."""
    return option(ungrouped(config, name))


def start_of(experiment: Experiment, preset: str, config: Any) -> Any:
    """The preset that a configuration is made from, with what was chosen in it."""
    if experiment.begin is None:
        return experiment.preset(preset)
    texts = {typed(config, n): v for n, v in settings(config).items() if isinstance(v, str)}
    chosen = {option(name): value for name, value in names_of_choices(config).items()}
    return experiment.begin(preset, {**texts, **chosen}.get)


def as_options(config: Any, start: Any, default: Any = None) -> list[str]:
    """The options that make `config` out of the preset `start`."""
    before, tokens, bare = settings(start), [], positional(type(config))
    own = names_of_choices(default) if default is not None else {}
    for name, chosen in names_of_choices(config).items():
        tokens += [option(name), chosen] if own.get(name, chosen) != chosen else []
    for name, value in settings(config).items():
        if name in before and before[name] == value:
            continue
        shown_name = ungrouped(config, name)
        if isinstance(value, bool):
            group, dot, last = shown_name.rpartition(".")
            tokens.append(option(shown_name if value else f"{group}{dot}no_{last}"))
        else:
            tokens += [*([] if name in bare else [option(shown_name)]), *_flat(value)]
    return tokens


def _flat(value: Any) -> list[str]:
    if isinstance(value, tuple | list):
        return [word for item in value for word in _flat(item)]
    if is_dataclass(value):
        raise TypeError(f"no option can express {value}")
    return [str(value)]


def remaking_command(name: str, arguments: Sequence[str]) -> str:
    """The command line that gives the same numbers: without where to write and what to show."""
    kept: list[str] = []
    skipped = 0  # values that are still to be left out
    for argument in arguments:
        start, equals, _ = argument.partition("=")
        if start in WITHOUT_EFFECT:
            skipped = WITHOUT_EFFECT[start] - bool(equals)
        elif skipped > 0 and not parsing.is_option(argument):
            skipped -= 1
        else:
            skipped = 0
            kept.append(argument)
    return shlex.join([PROG, "run", name, *kept])
