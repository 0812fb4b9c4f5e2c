"""What a run knows before it starts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.cli import before, main
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.record import checkpoint


def test_places_are_looked_at_before_anything_is_made(tmp_path: Path) -> None:
    before.check_places(tmp_path / "a" / "b", None)
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--publish: .*is a file"):
        before.check_places(tmp_path, tmp_path / "file" / "x")
    with pytest.raises(ConfigError, match="--out: .*zero byte"):
        before.check_places(tmp_path / "a\0b", None)
    with pytest.raises(ConfigError, match="expected a name in UTF-8; .*PYTHONUTF8=1"):
        before.check_places(tmp_path / "\udcc3\udcbcnd", None)
    with pytest.raises(ConfigError, match=f"existing folder .no {tmp_path / 'none'}"):
        before.check_file(tmp_path / "none" / "x.png")
    before.check_file(tmp_path / "x.png")


def test_checkpoints_name_a_folder_that_is_no_utf_8(tmp_path: Path) -> None:
    """Whatever command reads or writes them; data files of such names are read."""
    tree, folder = {"x": np.arange(3)}, tmp_path / os.fsdecode(b"\xff")
    checkpoint.save(tmp_path / "good", 0, tree)
    (tmp_path / "good").rename(folder)
    for act in (checkpoint.save, lambda *_: checkpoint.load_newest(folder, tree)):
        with pytest.raises(ConfigError, match="folder: .*a name in UTF-8; .*PYTHONUTF8=1"):
            act(folder, 1, tree)
    assert checkpoint.steps(folder) == [0]


def test_a_name_that_cannot_be_encoded_ends_a_command_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "dispatch", lambda arguments: "\udcff".encode())
    with pytest.raises(SystemExit, match=str(ConfigError.exit_code)):
        main.main(["list"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: name: found ") and "PYTHONUTF8=1" in line


def test_minutes_in_words() -> None:
    assert [before.words(m) for m in (0.3, 12.2, 83, 150)] == [
        "a minute",
        "12 minutes",
        "83 minutes",
        "2.5 hours",
    ]
