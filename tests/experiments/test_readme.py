"""The front page: links lead somewhere, its programs run, its commands are two blocks of a line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts import offline

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text()
STARTS = sorted((ROOT / "docs" / "pages" / "start").glob("*.md"))
PAGES = [ROOT / "README.md", *STARTS]
CODES = [
    pytest.param(code, id=f"{page.stem}-{i}")
    for page in PAGES
    for i, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]
# What takes its time, and how much of it a test spends instead.
LESS = {
    r'"ravl", seeds=2': '"ravl", preset="smoke", seeds=2',
    r"hidden_dims=\(64,\) \* 4": "hidden_dims=(16,), weight_decay=(0.0,)",
    r"(fields|rows|calls=4), (steps|updates)=\d+": r"\1, \2=20",
    r"modes=10\), steps=\d+": "modes=4, layers=1), steps=20",
    r"trajectories=\d+": "trajectories=4",
    r"sample\(4000": "sample(40",
    r"refinements=3": "refinements=1",
    r"max_epochs=\d+": "max_epochs=1",
    r"horizon=\d+": "horizon=20",
    r"points=32, oversampling=2, frames=31": "points=16, oversampling=1, frames=6",
    r"test, 30\)": "test, 5)",
    r", 1000\)": ", 20)",
    r"20_000": "60",
}


def run_example(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a user's own array lies: waves that wander."""
    monkeypatch.chdir(folder)
    x = np.arange(64) - np.arange(12)[:, None]
    phases = np.random.default_rng(0).uniform(0, 6, (16, 1, 1))
    np.save("mine.npy", np.sin(2 * np.pi * x / 64 + phases) + np.sin(4 * np.pi * x / 64))
    exec(compile(code, "README.md", "exec"), {})


def printed(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+\.?\d*", text)]


@pytest.mark.parametrize("code", CODES)
def test_the_examples_run(
    code: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In little time; `test_the_examples_run_word_for_word` takes the pages'."""
    for much, less in LESS.items():
        code = re.sub(much, less, code)
    run_example(code, tmp_path, monkeypatch)
    numbers = printed(capsys.readouterr().out)
    assert numbers and np.isfinite(numbers).all()


@pytest.mark.slow
@pytest.mark.parametrize("code", CODES)
def test_the_examples_run_word_for_word(
    code: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_example(code, tmp_path, monkeypatch)
    numbers = printed(capsys.readouterr().out)
    assert np.isfinite(numbers).all()
    if '"ravl", seeds=2' in code and "dynamics" not in code:
        data = offline.episode_returns(offline.load("pendulum-mixed").transitions).mean()
        assert min(numbers[:2]) > data + 200, "the first program trains a policy that is better"


def test_the_front_page_is_short_and_has_two_commands() -> None:
    assert len(TEXT.splitlines()) <= 110 and "benchmark: " in TEXT
    own = set(offline.METHODS) - {"neubay_markov", "online_sac"}
    assert "Twenty-five offline RL methods" in TEXT and len(own) == 25
    section = TEXT.split("## Two commands")[1].split("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    assert [block.count("\n") for block in blocks] == [1, 1]
    programs = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(programs) == 2 and all(len(p.splitlines()) <= 8 for p in programs)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_local_links_and_pictures_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target
