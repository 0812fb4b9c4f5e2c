"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jaxrl_rollouts.cli import main as cli


def run_folder(root: Path) -> Path:
    (folder,) = (root / "runs").iterdir()
    return folder


def fails(arguments: list[str], capsys: Any) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    return int(caught.value.code or 0), capsys.readouterr().err
