"""The README: its tables are the reports', its example runs, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jaxrl_rollouts.errors import DataError
from jaxrl_rollouts.experiments.readme import MARK, renewed
from jaxrl_rollouts.report import load_report

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
TEXT = (ROOT / "README.md").read_text()


def test_tables_are_those_of_the_committed_reports() -> None:
    assert MARK.search(TEXT), "the README quotes no report"
    assert renewed(TEXT, RESULTS) == TEXT, "run: python -m jaxrl_rollouts.experiments.readme"


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


def test_local_links_and_pictures_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_the_two_commands_are_two_blocks_of_one_line() -> None:
    section = TEXT.split("## Two commands")[1].split("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    assert [block.count("\n") for block in blocks] == [1, 1]


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    values = re.findall(r"-?\d+\.?\d*", capsys.readouterr().out)
    assert len(values) == 2
    assert all(-2000 < float(value) <= 0 for value in values)


@pytest.mark.parametrize(
    "report", sorted(RESULTS.glob("*/report.json")), ids=lambda p: p.parent.name
)
def test_committed_reports_are_whole(report: Path) -> None:
    loaded = load_report(report)  # recomputes every verdict
    assert loaded.experiment == report.parent.name
    assert loaded.claims
    assert loaded.command.startswith("jaxrl-rollouts run ")
    for claim in loaded.claims:
        assert claim.command.startswith("jaxrl-rollouts run ")
    for picture in loaded.pictures.values():
        assert (report.parent / picture.file).is_file()
    assert not re.search(r'"[^"]*(/home/|/root/|/tmp/|/work/)', report.read_text())
