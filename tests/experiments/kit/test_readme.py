"""README and report pages: tables are the reports', the example runs, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.experiments.catalogue import LISTINGS
from jaxrl_rollouts.experiments.kit.pages import MARK, renewed, reports_markdown, results_of
from jaxrl_rollouts.offline.study import Budget
from jaxrl_rollouts.plugins import load_experiment
from jaxrl_rollouts.reports.report import load_report
from jaxrl_rollouts.reports.text import report_table_markdown

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "experiments" / "results"
TEXT = (ROOT / "README.md").read_text()
RESULTS_PAGE = ROOT / "experiments" / "README.md"
LISTED = RESULTS_PAGE.read_text()
REPORTS = sorted(p for p in RESULTS.glob("*/report.json") if p.parent.name in LISTINGS)
VARIATIONS = sorted(RESULTS.glob("*/*/report.json"))  # told on a page of the experiment
FIRST = [report.with_name("README.md") for report in REPORTS]
PAGES = [RESULTS_PAGE, *(page for first in FIRST for page in sorted(first.parent.glob("*.md")))]
TOLD = [ROOT / "README.md", *PAGES]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.parent.name)


@each_page
def test_tables_are_those_of_the_committed_reports(page: Path) -> None:
    text = page.read_text()
    assert MARK.search(text), "the page quotes no report"
    assert renewed(text, results_of(page)) == text, "python -m jaxrl_rollouts.experiments.kit.pages"


NUMBER = r"-?\d[\d,]*\.?\d*(?:e[+-]\d+)?"
RANGE = re.compile(rf"({NUMBER}) to ({NUMBER})")
BY_HAND = [  # a page has tables beside those it takes from one report: several reports side by side
    page
    for page in PAGES[1:]
    if any(line.startswith("|") for line in MARK.sub("", page.read_text()).splitlines())
]


def pages_of(folder: Path) -> str:
    """All that is told of an experiment."""
    return "\n".join(page.read_text() for page in sorted(folder.glob("*.md")))


def ranges_of(report: Path) -> set[tuple[str, str]]:
    loaded = load_report(report)
    tables = (report_table_markdown(loaded, name) for name in loaded.tables)
    return {found for table in tables for found in RANGE.findall(table)}


def rounded_to(shown: str, exact: str) -> bool:
    off = float(shown.replace(",", "")) - float(exact.replace(",", ""))
    return abs(off) <= 0.5 * 10.0 ** -len(shown.partition(".")[2]) + 1e-9


@pytest.mark.parametrize("page", BY_HAND, ids=lambda p: p.parent.name)
def test_a_table_over_several_reports_says_what_they_say(page: Path) -> None:
    text = page.read_text()
    told = pages_of(page.parent)
    linked = {page.parent / link for link in re.findall(r"\]\(([^)#]*report\.json)\)", told)}
    known = set().union(*map(ranges_of, linked))
    lines = [line for line in MARK.sub("", text).splitlines() if line.startswith("|")]
    shown = RANGE.findall("\n".join(lines).replace("*", ""))
    assert shown
    for low, high in shown:
        assert any(rounded_to(low, a) and rounded_to(high, b) for a, b in known), (low, high)


def test_a_number_no_report_has_would_be_noticed() -> None:
    assert rounded_to("-162", "-161.5") and rounded_to("2,577", "2,577") and rounded_to("0", "0.37")
    assert not rounded_to("-163", "-161.5") and not rounded_to("1.5", "1.56")


def test_the_list_of_reports_has_each_with_its_verdicts() -> None:
    assert LISTED.count("<!-- reports -->") == 1
    rows = reports_markdown(RESULTS).splitlines()[2:]
    assert len(rows) == len(REPORTS)
    for row, path in zip(rows, REPORTS, strict=True):
        claims = load_report(path.parent).claims
        held, early = ([getattr(c, key) for c in claims] for key in ("holds", "converged"))
        assert f"`{path.parent.name}`" in row
        late = f", {early.count(False)} not converged" if False in early else ""
        assert f"| {held.count(True)} of {len(claims)}{late} |" in row


def test_a_page_outside_a_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="checkout"):
        results_of(tmp_path / "README.md")


def test_a_changed_number_would_be_noticed() -> None:
    table = MARK.search(LISTED)[4]  # type: ignore[index]
    digit = re.search(r"\d", table)
    assert digit
    changed = table[: digit.start()] + str((int(digit[0]) + 1) % 10) + table[digit.end() :]
    assert renewed(LISTED.replace(table, changed, 1), RESULTS) == LISTED


def test_an_unknown_table_is_named() -> None:
    name = next(iter(RESULTS.iterdir())).name
    with pytest.raises(DataError, match="no-such"):
        renewed(f"<!-- report: {name} / no-such -->\n<!-- end -->", RESULTS)


def sections_of(page: Path) -> set[str]:
    """The headings' names in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", TOLD, ids=lambda p: p.parent.name)
def test_local_links_and_pictures_exist(page: Path) -> None:
    for target, section in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text()):
        if "://" in target:
            continue
        led_to = page.parent / target if target else page
        assert led_to.exists(), target
        assert not section or section in sections_of(led_to), section


@pytest.mark.parametrize("page", FIRST, ids=lambda p: p.parent.name)
def test_a_report_page_names_its_command_and_shows_its_pictures(page: Path) -> None:
    report, text = load_report(page.parent), page.read_text()
    assert f"`{report.command}`" in text
    assert f"/{report.experiment}/README.md" in LISTED
    files = [picture.file for picture in report.pictures.values()]
    assert not files or any(f"({file})" in text for file in files)


@pytest.mark.parametrize("path", VARIATIONS, ids=lambda p: p.parent.name)
def test_a_variation_is_told_on_a_page_of_its_experiment(path: Path) -> None:
    folder, report = path.parent, load_report(path)
    assert report.experiment == folder.parent.name
    text = pages_of(folder.parent)
    assert f"`{report.command}`" in text and f"({folder.name}/report.json)" in text
    assert f"<!-- report: {report.experiment}/{folder.name} / " in text


def test_the_two_commands_are_two_blocks_of_one_line() -> None:
    section = TEXT.split("## Two commands")[1].split("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    assert [block.count("\n") for block in blocks] == [1, 1]


CODES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
# What takes its time, and how much of it a test spends instead.
LESS = {
    r"hidden=\(64,\) \* 4": "hidden=(16,), weight_decay=(0.0,)",
    r"\), updates=\d+": "), updates=20",
    r"trajectories=\d+": "trajectories=4",
    r"fields, updates=\d+": "fields, updates=20, network=pde.Resnet(8, blocks=1, dilations=(1,))",
    r"(rows, |calls=4, )updates=\d+": r"\1updates=20",
    r"sample\(4000": "sample(40",
    r"steps=3": "steps=1",
    r"max_epochs=\d+": "max_epochs=1",
    r"horizon=\d+": "horizon=20",
    r"points=32, finer=2, frames=31": "points=16, finer=1, frames=6",
    r"modes=10": "modes=4, layers=1",
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


@pytest.mark.parametrize("number", range(len(CODES)))
def test_the_examples_run(
    number: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the smallest of budgets; `test_the_examples_run_word_for_word` takes README's."""
    smoke = load_experiment("offline").presets["smoke"]
    budget = Budget(smoke.study, smoke.model_free, smoke.neubay)
    monkeypatch.setattr("jaxrl_rollouts.offline.study.study.small_budget", lambda: budget)
    made = "jaxrl_rollouts.offline.synthetic.synthesis.small_synthetic"
    monkeypatch.setattr(made, lambda: smoke.synthetic)
    code = CODES[number]
    for much, less in LESS.items():
        code = re.sub(much, less, code)
    run_example(code, tmp_path, monkeypatch)
    numbers = printed(capsys.readouterr().out)
    assert numbers and np.isfinite(numbers).all()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CODES)))
def test_the_examples_run_word_for_word(
    number: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_example(CODES[number], tmp_path, monkeypatch)
    numbers = printed(capsys.readouterr().out)
    if number == 0:
        data, *policies = numbers[:3]
        assert min(policies) > data + 200, "the first thing a user sees is a policy that learned"


def test_what_the_first_example_prints_is_a_policy_better_than_its_data() -> None:
    """The numbers README shows; the test above makes them anew."""
    shown = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)[0]
    data, *policies = printed(shown)[:3]
    assert min(policies) > data + 200
    words = [re.findall(r"[a-z ]+:", part)[:3] for part in (CODES[0], shown)]
    assert [w.strip() for w in words[1]] == ["the data:", "policies:", "promised and earned:"]


def test_there_are_the_seven_programs() -> None:
    assert len(CODES) == 7
    assert all(len(code.splitlines()) <= 16 for code in CODES)


@pytest.mark.parametrize("report", [*REPORTS, *VARIATIONS], ids=lambda p: p.parent.name)
def test_committed_reports_are_whole(report: Path) -> None:
    loaded = load_report(report)  # recomputes every verdict
    assert loaded.experiment == report.relative_to(RESULTS).parts[0]
    assert loaded.claims
    assert loaded.command.startswith("jaxrl-rollouts run ")
    for claim in loaded.claims:
        assert claim.command.startswith("jaxrl-rollouts run ")
    for picture in loaded.pictures.values():
        assert (report.parent / picture.file).is_file()
    assert not re.search(r'"[^"]*(/home/|/root/|/tmp/|/work/)', report.read_text())
