"""Pages of results: short, complete, and every number of their tables is in the study's CSV."""

from __future__ import annotations

import bisect
import csv
import functools
import re
from pathlib import Path

import numpy as np
import pytest

from jaxrl_rollouts.experiments.collect import collect
from jaxrl_rollouts.offline.choosing.scores import absolute_error, rank_correlation, regret
from jaxrl_rollouts.reports.report import Report
from jaxrl_rollouts.reports.statistics import iqm
from jaxrl_rollouts.sweep import bench

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE, RESULTS = ROOT / "experiments" / "evidence", ROOT / "experiments" / "results"
PAGES = sorted(RESULTS.glob("*.md"))
COLUMNS = ["dataset", "sha256", "arm", "seed", "step", "metric", "value", "commit"]
NUMBER = re.compile(r"(?<![\w./-])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?(?![\w/])")
# Benchmarks have tables of their own columns, from which their pages are built.
SUITES = sorted((ROOT / "experiments" / "suites").glob("*.toml"))
BUILT = {path.stem for path in SUITES}
WRITTEN = [page for page in PAGES if page.stem not in BUILT]
# Pages of what is no agent: emulators, forecasts, an exact check, speed.
OTHERS = ("refiner", "operators", "trust_pde", "open_loop", "guidance_gaussian", "speed")
AGENTS = [page for page in WRITTEN if page.stem not in OTHERS]
every_page = pytest.mark.parametrize("page", WRITTEN, ids=lambda path: path.stem)


@functools.cache
def known(name: str) -> list[float]:
    """Sorted values of a table: seeds', their interquartile means, and numbers in arms' names."""
    values, groups = set(), {}
    with (EVIDENCE / f"{name}.csv").open() as file:
        for row in csv.DictReader(file):
            value = float(row["value"])
            values |= {value, *map(float, re.findall(r"\d+\.?\d*", f"{row['arm']} {row['step']}"))}
            key = row["dataset"], row["arm"], row["metric"], row["step"]
            groups.setdefault(key, []).append(value)
    values |= {float(iqm(np.array(group))) for group in groups.values()}
    return sorted(values)


def within(text: str, values: list[float]) -> bool:
    """Whether a value rounds to the number as it is written, at its own number of digits."""
    plain = text.replace(",", "")
    mantissa, _, exponent = plain.partition("e")
    decimals = len(mantissa.partition(".")[2])
    half = 0.5001 * 10.0 ** (int(exponent or 0) - decimals)
    at = bisect.bisect_left(values, float(plain) - half)
    return at < len(values) and values[at] <= float(plain) + half


def numbers(text: str) -> list[str]:
    """Numbers in the rows of a page's tables; not the first cell's, hashes or shares like 2/4."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = (row.split("|", 2)[2] for row in rows[2:])
    return [n for cell in cells for n in NUMBER.findall(re.sub(r"\b[0-9a-f]{8}\b", "", cell))]


TABLES = [path for path in sorted(EVIDENCE.glob("*.csv")) if path.stem not in BUILT]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_tables_have_the_columns(path: Path) -> None:
    with path.open() as file:
        rows = list(csv.reader(file))
    assert len(rows) > 10
    if path.stem == "runs":
        assert rows[0][0] == "study" and len({row[1] for row in rows}) == len(rows)
        return
    assert rows[0] == COLUMNS and {len(row) for row in rows} == {len(COLUMNS)}
    assert all(np.isfinite(float(row[6])) for row in rows[1:])
    assert {len(row[1]) for row in rows[1:]} <= {0, 8}


def test_there_are_few_pages_and_pictures() -> None:
    shown = [p for p in (ROOT / "experiments").rglob("*") if p.suffix in (".png", ".gif", ".svg")]
    assert len(PAGES) <= 25 and len(shown) <= 40
    assert sum(path.stat().st_size for path in shown) <= 8e6
    index = (ROOT / "experiments" / "README.md").read_text()
    assert sorted(re.findall(r"results/(\w+)\.md", index)) == [page.stem for page in PAGES]


@every_page
def test_a_page_is_short_and_complete(page: Path) -> None:
    text = page.read_text()
    words = [word for word in text.split() if any(letter.isalnum() for letter in word)]
    assert len(words) <= 400
    for part in ("# ", "**Question.**", "**Verdict.**", "**Limits.**", "**Command.**"):
        assert text.count(part) >= 1, part
    assert re.search(r"n = \d|\bn =|seeds|cores|cases|policies|network calls", text.splitlines()[0])
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / link).resolve().is_file(), link


@pytest.mark.parametrize("page", AGENTS, ids=lambda path: path.stem)
def test_a_page_of_agents_names_rate_networks_seeds_and_which_evaluation_counts(page: Path) -> None:
    text = page.read_text()
    for part in (r"τ = 0\.\d", r"\d × \d+|width \d+", r"n = \d|seeds", r"\b(last|final)\b"):
        assert re.search(part, text), part


@every_page
def test_numbers_of_a_page_are_in_its_table(page: Path) -> None:
    text = page.read_text()
    found = numbers(text)
    missing = [n for n in found if not within(n, known(page.stem))]
    assert len(found) > 5 and missing == [], f"not in evidence/{page.stem}.csv"


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_a_benchmarks_page_is_what_its_table_gives(path: Path, tmp_path: Path) -> None:
    bench.table(str(path), page=tmp_path / f"{path.stem}.md")
    built = (tmp_path / f"{path.stem}.md").read_text()
    assert (RESULTS / f"{path.stem}.md").read_text() == built


def test_a_number_that_nobody_measured_is_seen() -> None:
    values = known("neubay")
    assert within("2,533", values) and within("-571", values)
    assert not within("2,541.7", values) and not within("999,999", values)
    assert numbers("| a | b |\n|---|\n| 7 403456ec | 1,234 (2/4) -5 |") == ["1,234", "-5"]


def test_numbers_of_the_front_page_are_measured() -> None:
    """Each row of its tables names the study's page that it is from; a benchmark's is its own."""
    lines = (ROOT / "README.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("|") and "results/" in line]
    assert len(rows) >= 10
    for row in rows:
        (study,) = set(re.findall(r"results/(\w+)\.md", row))
        name, cells = row.split("|", 2)[1:]
        if study in BUILT:
            start = "| " + re.findall(r"\[(.*?)\]", name)[0] + " |"
            own = (RESULTS / f"{study}.md").read_text().splitlines()
            same = next(line for line in own if line.startswith(start)).split("|")
            assert {*map(str.strip, cells.split("|"))} <= {*map(str.strip, same)}, row
            continue
        missing = [n for n in NUMBER.findall(cells) if not within(n, known(study))]
        assert NUMBER.findall(cells) and not missing, (study, missing)


def test_numbers_of_the_first_program_are_measured() -> None:
    """Returns, the data's, estimates and true values are printed beside `print(result...)`."""
    text = (ROOT / "README.md").read_text()
    comments = re.findall(r"print\(result\..*?\)\s+# (.*)", text)
    found = [number for comment in comments for number in NUMBER.findall(comment)]
    assert len(found) == 7
    assert not [n for n in found if not within(n, known("archive/front_page"))]


def test_critics_estimates_of_policies_are_the_benchmarks() -> None:
    """Their rows beside `choose` are made anew from the benchmark's table and the true values."""
    with (EVIDENCE / "mini.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["metric"] == "estimated_value"]
    rows = [r for r in rows if r["step"] == "150000"]
    last = {(r["dataset"], r["method"], r["seed"]): r["value"] for r in rows}
    with (EVIDENCE / "policy_value.csv").open() as file:
        table = {(r["arm"], r["metric"]): float(r["value"]) for r in csv.DictReader(file)}
    scores = {
        "rank correlation": rank_correlation,
        "regret@1": regret,
        "absolute error": absolute_error,
    }
    for dataset in {arm.partition(":")[0][7:] for arm, _ in table if arm.endswith(": critics")}:
        whole = f"choose/{dataset}: critics"
        arms = [arm for arm, metric in table if arm.startswith(whole + ": ") and metric == "value"]
        own = [float(last[dataset, *arm.split(": ")[2].split("/")]) for arm in arms]
        assert len(arms) == table[whole, "policies"] == 24
        assert own == [table[arm, "value"] for arm in arms]
        true = [table[arm.replace("critics", "models"), "true"] for arm in arms]
        for name, score in scores.items():
            assert table[whole, name] == pytest.approx(score(true, own), rel=1e-5), (dataset, name)


def test_a_run_is_collected_once(tmp_path: Path) -> None:
    run = tmp_path / "mine"
    report = Report("toy", "smoke", {}, "jaxrl-rollouts run toy", 2)
    report.versions["commit"] = "c0ffee"
    report.note(f"Data waves: sha256 {'ab' * 32}.")
    report.note(f"Data waves-5: sha256 {'ab' * 32}.")  # a stage's name of the same file
    report.table("results", [{"method": "ravl", "steps": 30, "return": np.array([1.0, 2.1234567])}])
    report.save(run)
    other = "old,,another: t: x,0,,return,5,abc"
    (tmp_path / "toy.csv").write_text(",".join(COLUMNS) + f"\n{other}\n")
    for _ in range(2):  # the second time its rows are replaced
        collect(run, "toy", tmp_path)
    arm = "waves,abababab,mine: results: method=ravl"
    assert (tmp_path / "toy.csv").read_text().splitlines()[1:] == [
        other,
        f"{arm},all,30,steps,30,c0ffee",
        f"{arm},0,30,return,1,c0ffee",
        f"{arm},1,30,return,2.12346,c0ffee",
    ]
