"""README and report pages: tables are the reports', the example runs, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.experiments.kit.pages import MARK, renewed, reports_markdown, results_of
from jaxrl_rollouts.offline.study import Budget
from jaxrl_rollouts.plugins import load_experiment
from jaxrl_rollouts.reports.report import load_report

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "experiments" / "results"
TEXT = (ROOT / "README.md").read_text()
REPORTS = sorted(RESULTS.glob("*/report.json"))
VARIATIONS = sorted(RESULTS.glob("*/*/report.json"))  # told on the experiment's own page
PAGES = [ROOT / "README.md", *(report.with_name("README.md") for report in REPORTS)]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.parent.name)


@each_page
def test_tables_are_those_of_the_committed_reports(page: Path) -> None:
    text = page.read_text()
    assert MARK.search(text), "the page quotes no report"
    assert renewed(text, results_of(page)) == text, "python -m jaxrl_rollouts.experiments.kit.pages"


def test_the_list_of_reports_has_each_with_its_verdicts() -> None:
    assert TEXT.count("<!-- reports -->") == 1
    rows = reports_markdown(RESULTS).splitlines()[2:]
    assert len(rows) == len(REPORTS)
    for row, path in zip(rows, REPORTS, strict=True):
        claims = load_report(path.parent).claims
        held = [claim.name for claim in claims if claim.holds]
        assert f"`{path.parent.name}`" in row
        assert f"| {len(held)} of {len(claims)} |" in row


def test_a_page_outside_a_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="checkout"):
        results_of(tmp_path / "README.md")


def test_a_changed_number_would_be_noticed() -> None:
    table = MARK.search(TEXT)[4]  # type: ignore[index]
    digit = re.search(r"\d", table)
    assert digit
    changed = table[: digit.start()] + str((int(digit[0]) + 1) % 10) + table[digit.end() :]
    assert renewed(TEXT.replace(table, changed, 1), RESULTS) == TEXT


def test_an_unknown_table_is_named() -> None:
    name = next(iter(RESULTS.iterdir())).name
    with pytest.raises(DataError, match="no-such"):
        renewed(f"<!-- report: {name} / no-such -->\n<!-- end -->", RESULTS)


@each_page
def test_local_links_and_pictures_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda p: p.parent.name)
def test_a_report_page_names_its_command_and_shows_its_pictures(page: Path) -> None:
    report, text = load_report(page.parent), page.read_text()
    assert f"`{report.command}`" in text
    assert f"/{report.experiment}/README.md" in TEXT
    files = [picture.file for picture in report.pictures.values()]
    assert not files or any(f"({file})" in text for file in files)


@pytest.mark.parametrize("path", VARIATIONS, ids=lambda p: p.parent.name)
def test_a_variation_is_told_on_its_experiments_page(path: Path) -> None:
    folder, report = path.parent, load_report(path)
    assert report.experiment == folder.parent.name
    text = (folder.parent / "README.md").read_text()
    assert f"`{report.command}`" in text and f"({folder.name}/report.json)" in text
    assert f"<!-- report: {report.experiment}/{folder.name} / " in text


def test_the_two_commands_are_two_blocks_of_one_line() -> None:
    section = TEXT.split("## Two commands")[1].split("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    assert [block.count("\n") for block in blocks] == [1, 1]


def test_the_examples_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Word for word; the first with the smallest of budgets."""
    smoke = load_experiment("offline").presets["smoke"]
    budget = Budget(smoke.study, smoke.model_free, smoke.neubay)
    monkeypatch.setattr("jaxrl_rollouts.offline.study.study.small_budget", lambda: budget)
    codes = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    numbers = []
    for code in codes:
        exec(compile(code, "README.md", "exec"), {})
        numbers.append([float(x) for x in re.findall(r"-?\d+\.?\d*", capsys.readouterr().out)])
    returns, parts = numbers[0][:2], numbers[1]
    assert [len(printed) for printed in numbers] == [6, 2]
    assert all(-2000 < value <= 0 for value in (*returns, *parts))


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
