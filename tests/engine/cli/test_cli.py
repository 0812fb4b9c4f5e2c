from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from helpers_cli import fails, run_folder

from jaxrl_rollouts.cli import main as cli
from jaxrl_rollouts.cli.options import remaking_command
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record import provenance


def test_run_saves_prints_and_publishes(plugin: Path, capsys: Any) -> None:
    cli.main(
        ["run", "toy", "--seeds", "3", "--agent.num-critics", "10", "--logger", "jsonl,csv"]
        + ["--publish", "results", "--no-progress"]
    )
    out = capsys.readouterr().out
    folder = run_folder(plugin)
    assert "✓" in out and f"picture: runs/{folder.name}/empty.png" in out
    report = json.loads((folder / "report.json").read_text())
    assert report["config"]["agent"]["num_critics"] == 10 and report["preset"] == "cpu"
    assert report["numbers"]["value"]["values"] == [3.0, 3.0, 3.0]
    assert report["command"] == "jaxrl-rollouts run toy --seeds 3 --agent.num-critics 10"
    assert report["claims"][0]["command"] == report["command"]
    assert report["wall_seconds"] > 0
    assert {p.name for p in (plugin / "results" / "toy").iterdir()} == {"report.json", "empty.png"}
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3
    assert len((folder / "metrics.csv").read_text().splitlines()) == 1 + 3 * 3


def test_report_prints_again(plugin: Path, capsys: Any) -> None:
    cli.main(["run", "toy", "--preset=smoke"])
    first = capsys.readouterr().out
    report = json.loads((run_folder(plugin) / "report.json").read_text())
    assert report["config"]["steps"] == 1 and report["preset"] == "smoke"
    cli.main(["report", str(run_folder(plugin)), "--publish", "results"])
    second = capsys.readouterr().out
    assert "claims: 0 of 1 hold" in first and "claims: 0 of 1 hold" in second
    assert (plugin / "results" / "toy" / "report.json").exists()


def test_list_and_run_help(plugin: Path, capsys: Any) -> None:
    for arguments in (["list"], ["run"], ["run", "--help"]):
        cli.main(arguments)
        out = capsys.readouterr().out
        assert (
            "toy " in out
            and "Counts." in out
            and "presets: smoke, cpu (12 minutes), slow (not measured)" in out
        )
        assert "broken" in out and "cannot be loaded" in out
        # The main job first; what is listed needs no import, which would fail here.
        assert out.index("listed ") < out.index("toy ") and "START HERE: Known from afar." in out
        assert (
            "presets: cpu (90 minutes), paper (not measured)" in out
            and "paper needs a dataset" in out
        )
        assert "slow needs patience" in out


def test_help_of_an_experiment_shows_settings_of_the_preset(plugin: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", "toy", "--preset", "slow", "--help"])
    out = capsys.readouterr().out
    assert caught.value.code == 0
    for text in ("--agent.num-critics", "How many critics", "default: 400", "Counts.", "--logger"):
        assert text in out


def test_top_level_help_names_every_command(plugin: Path, capsys: Any) -> None:
    for arguments in ([], ["--help"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        out = capsys.readouterr().out
        assert caught.value.code == 0
        for name in ("run", "resume", "report", "list", "say", "data"):
            assert f"• {name} " in out


def test_commands_of_other_packages(plugin: Path, capsys: Any) -> None:
    cli.main(["say", "hello", "--x"])
    assert capsys.readouterr().out == "jaxrl-rollouts say hello --x\n"


BAD = {
    "command": (["rnu"], "command: found 'rnu'.*did you mean run"),
    "experiment": (["run", "tyo"], "experiment: found 'tyo'.*did you mean toy"),
    "preset": (["run", "toy", "--preset", "smok"], "preset: found 'smok'.*did you mean smoke"),
    "option before name": (["run", "--seeds", "3"], "run: found '--seeds'.*before any option"),
    "contradiction": (["run", "toy", "--seeds", "0"], "--seeds: found 0, expected at least 1"),
    "logger": (["run", "toy", "--logger", "csw"], "--logger: found 'csw'.*did you mean csv"),
    "no run": (["resume", "nowhere"], "nowhere: found no folder"),
    "no report": (["report", "nowhere"], "nowhere.*found no such file"),
    "no run.json": (["resume", "site"], "run.json: found no such file"),
    "out is a file": (["run", "toy", "--out", "site/toy_plugin.py"], "--out: .*is a file"),
    "publish is a file": (["run", "toy", "--publish", "site/toy_plugin.py/x"], "--publish: .*file"),
    "unknown option": (["run", "toy", "--agent.rat", "3"], "'--agent.rat'.*mean --agent.rate?"),
    "option without group": (["run", "toy", "--num-critics", "3"], "mean --agent.num-critics?"),
    "another is closer": (["run", "toy", "--sizes", "3"], "mean --agent.sizes?"),
    "no value": (["run", "toy", "--seeds"], "--seeds: found 'nothing', expected 1 value"),
    "word for a number": (["run", "toy", "--seeds", "many"], "--seeds: found 'many', expected INT"),
    "literal": (["run", "toy", "--agent.memory", "gur"], "--agent.memory: .*did you mean gru?"),
    "list": (["run", "toy", "--agent.sizes", "8,8"], "found '8,8', expected INT INT.*spaces"),
    "stray": (["run", "toy", "3"], "argument: found '3'"),
    "nested range": (["run", "toy", "--agent.rate", "-1"], "--agent.rate: found -1.0, expected"),
    "choice": (["run", "toy", "--kind", "fanzy"], "--kind: found 'fanzy'.*did you mean fancy?"),
    "choice of the unloaded": (["run", "listed", "--kind", "read"], "--kind: .*did you mean red?"),
    "missing extra": (["run", "toy", "--fail", "missing"], "counting needs the package abacus"),
    "option of a command": (["resume", "x", "--loggr", "csv"], "'--loggr'.*did you mean --logger?"),
    "required": (["resume"], "jaxrl-rollouts resume: found 'nothing', expected PATH"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_two(plugin: Path, capsys: Any, case: str) -> None:
    arguments, message = BAD[case]
    code, err = fails(arguments, capsys)
    assert code == 2
    line = err.splitlines()[-1]
    assert line.startswith("error: ") and re.search(message, line)
    assert "Traceback" not in err
    assert not (plugin / "runs").exists(), "nothing half-written"


def test_divergence_has_its_own_exit_code_and_bugs_their_traceback(
    plugin: Path, capsys: Any
) -> None:
    code, err = fails(["run", "toy", "--fail", "diverge"], capsys)
    assert code == 3 and "error: metric loss is nan" in err
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["run", "toy", "--fail", "bug"])


def test_other_refusals_are_one_line(plugin: Path, capsys: Any, monkeypatch: Any) -> None:
    def refuse(_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "somewhere")

    monkeypatch.setattr(cli, "dispatch", refuse)
    assert fails(["data"], capsys) == (2, "error: somewhere: Permission denied\n")


@pytest.mark.parametrize("fail", ["diverge", "bug", "missing"])
@pytest.mark.parametrize("out", ["runs", "some/where/new"])
def test_a_run_that_fails_at_once_leaves_nothing_behind(
    plugin: Path, capsys: Any, fail: str, out: str
) -> None:
    before = set(plugin.rglob("*"))
    with pytest.raises((SystemExit, RuntimeError)):
        cli.main(["run", "toy", "--fail", fail, "--out", out, "--logger", "jsonl,tensorboard"])
    left = set(plugin.rglob("*")) - before
    assert not [path for path in left if "__pycache__" not in path.parts]
    # What can be known before is said before there is a folder.
    assert ("run folder:" in capsys.readouterr().err) == (fail != "missing")


def test_a_run_says_beforehand_what_it_is_and_how_long_it_takes(plugin: Path, capsys: Any) -> None:
    cli.main(["run", "toy"])
    notes = capsys.readouterr().err
    assert "note: counts to 3" in notes and re.search("note: preset cpu takes about .* on", notes)
    assert "other settings" not in notes
    cli.main(["run", "toy", "--steps", "2"])
    assert "other settings more or less" in capsys.readouterr().err
    cli.main(["run", "toy", "--preset", "smoke"])
    assert "how long preset smoke takes was not measured" in capsys.readouterr().err
    cli.main(["run", "toy", "--kind", "fancy"])  # other minutes than those of the preset
    assert "preset cpu with --kind fancy takes was not measured" in capsys.readouterr().err


def test_help_and_mistyped_names_do_not_wait_for_jax() -> None:
    lines = ["--help", "list", "run --help", "data --help", "pde --help", "resume nowhere"]
    lines += ["pde generate --help", "pde roll --help", "data make --help", "evaluate --help"]
    lines += ["run ofline", "run offline --method mopoo", "run offline --preset=cpu --method=x"]
    code = (
        "import sys\n"
        "from jaxrl_rollouts.cli import main as cli\n"
        f"for line in {lines}:\n"
        "    try: cli.main(line.split())\n"
        "    except SystemExit: pass\n"
        "    heavy = {'jax', 'flax', 'matplotlib', 'h5py', 'numpy'} & set(sys.modules)\n"
        "    assert not heavy, (line, heavy)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_remaking_command_drops_where_and_keeps_what() -> None:
    line = "--out /x --preset cpu --publish=/y --no-progress --seeds 3 --logger csv"
    assert (
        remaking_command("toy", shlex.split(line))
        == "jaxrl-rollouts run toy --preset cpu --seeds 3"
    )
    assert remaking_command("toy", ["--dataset", "a b"]).endswith("--dataset 'a b'")


def test_experiment_presets_are_checked(plugin: Path) -> None:
    from jaxrl_rollouts.plugins import Experiment, load_experiment

    toy = load_experiment("toy")
    assert toy.default_preset == "cpu" and toy.preset("smoke").steps == 1
    with pytest.raises(ConfigError, match="one of smoke, cpu, slow"):
        toy.preset("x")
    with pytest.raises(ValueError, match="found no presets"):
        Experiment("a", "b", "c", dict, {}, toy.run)
    with pytest.raises(ValueError, match="preset p: found int, expected dict"):
        Experiment("a", "b", "c", dict, {"p": 3}, toy.run)


def test_warnings_are_one_line_without_source_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")  # what a user has set stays
    monkeypatch.setattr(cli, "dispatch", lambda _: warnings.warn("look\n  here", stacklevel=1))
    cli.main(["anything"])
    assert capsys.readouterr().err == "warning: look here\n"
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "1"
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    cli.main(["anything"])
    assert os.environ.pop("TF_CPP_MIN_LOG_LEVEL") == "3"


def test_a_terminal_that_shows_ascii_only_ends_no_run(plugin: Path, monkeypatch: Any) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    cli.main(["run", "toy", "--preset", "smoke"])
    shown.flush()
    printed = shown.buffer.getvalue()
    assert b"?" in printed and printed.isascii()


def test_the_version_names_the_commit(capsys: Any, plugin: Path) -> None:
    cli.main(["--version"])
    printed = capsys.readouterr().out.strip()
    root = Path(provenance.__file__).parents[2]
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True)
    if head.returncode == 0:
        assert re.fullmatch(rf"\S+ \({head.stdout.strip()}(\+changed)?\)", printed)
    cli.main(["run", "toy", "--preset", "smoke"])
    versions = json.loads((run_folder(plugin) / "run.json").read_text())["versions"]
    assert versions.get("commit", "") in printed
    assert versions.get("commit", "") == provenance.code_commit()


def test_code_without_a_repository_is_known_by_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "jaxrl_rollouts"
    (package / "record").mkdir(parents=True)
    (tmp_path / "offline").mkdir()
    (package / "offline").symlink_to(tmp_path / "offline")
    monkeypatch.setattr(provenance, "__file__", str(package / "record" / "provenance.py"))
    found = []
    for text in ("1", "1", "2"):
        (tmp_path / "offline" / "a.py").write_text(text)
        found.append(provenance.code_commit.__wrapped__())
    assert found[0] == found[1] != found[2] and found[0].startswith("files-")
