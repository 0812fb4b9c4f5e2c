from __future__ import annotations

import base64
import io
import json
import math
import platform
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from jaxrl_rollouts.errors import CheckpointError, DataError
from jaxrl_rollouts.record.files import plain
from jaxrl_rollouts.record.provenance import Clock, provenance
from jaxrl_rollouts.reports import pictures
from jaxrl_rollouts.reports.claims import Claim, counted
from jaxrl_rollouts.reports.report import Report, load_report, publish
from jaxrl_rollouts.reports.statistics import iqm, summarize
from jaxrl_rollouts.reports.text import (
    format_number,
    print_report,
    report_table_markdown,
    write_pages,
)

TEXTS = {"source": "RAVL, table 1", "expected": "RAVL reaches the optimum"}


def claim(values: Any, threshold: float = 3.0, **rest: Any) -> Claim:
    return Claim.of("c", values=values, at_least=threshold, **TEXTS, **rest)


def example() -> Report:
    report = Report("toy", "cpu", {"seeds": 3}, "jaxrl-rollouts run toy", seeds=3)
    report.number("return", [1.0, 2.0, 6.0], unit="points")
    report.number("exploded", [1.0, np.inf, np.nan])
    rows = [
        {"method": "ravl", "score": np.array([1.0, 2.0, 3.0]), "steps": 5, "ok": True},
        {"method": "base|x", "score": summarize([np.nan]), "note": None},
    ]
    report.table("scores", rows)
    report.claim(claim([4.0, 5.0]))
    report.claim(Claim.of("d", values=[9.0], between=(0, 1), **TEXTS))
    figure, axes = pictures.figure()
    pictures.curve_with_band(axes[0], [0, 1, 2], np.eye(3), "ravl")
    report.picture("curve", figure, "A curve")
    report.note("a [note] with brackets")
    return report


@pytest.mark.parametrize(
    ("statistic", "measured"),
    [("iqm", 3.0), ("mean", 22.0), ("median", 3.0), ("min", 1.0), ("max", 100.0), ("all", 1.0)],
)
def test_each_statistic(statistic: str, measured: float) -> None:
    made = claim([1.0, 2.0, 3.0, 4.0, 100.0], 2.5, statistic=statistic)
    assert made.measured == pytest.approx(measured)
    assert made.holds is (measured >= 2.5)
    low, high = made.interval or (math.nan, math.nan)
    assert low <= made.measured <= high


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=8), st.floats(-10, 10))
def test_all_is_the_conjunction_over_seeds(values: list[float], bound: float) -> None:
    rest = {"values": values, "statistic": "all", **TEXTS}
    assert Claim.of("a", at_least=bound, **rest).holds is all(v >= bound for v in values)
    assert Claim.of("a", at_most=bound, **rest).holds is all(v <= bound for v in values)
    inside = Claim.of("a", between=(bound - 1, bound + 1), **rest)
    assert inside.holds is all(bound - 1 <= v <= bound + 1 for v in values)


def test_bounds_are_inclusive_and_nan_never_holds() -> None:
    assert claim([3.0]).holds
    assert not claim([math.nan, 9.0]).holds
    assert not Claim.of("c", values=[math.nan], at_most=1, **TEXTS).holds
    for value in (math.inf, -math.inf, math.nan):
        undecided = Claim.of("c", values=[value, 9.0], at_least=1, **TEXTS)
        assert undecided.verdict == "undecided" and not undecided.holds
        assert not Claim.of("c", values=[value, 9.0], at_most=1, **TEXTS).holds
        stored = json.loads(json.dumps(plain(undecided.to_json())))
        assert plain(Claim.from_json(stored, "x").to_json()) == stored
    claims = [claim([5.0]), claim([0.0]), claim([math.inf])]
    assert [c.verdict for c in claims] == ["yes", "no", "undecided"]
    assert counted(claims) == "1 of 3 hold, 1 undecided"
    assert claim([5.0]).interval is None


def test_the_outcome_cannot_be_given() -> None:
    for name in ("holds", "measured", "interval", "seeds"):
        with pytest.raises(TypeError, match=name):
            Claim("c", "s", "e", (1.0,), 0.0, None, **{name: True})
        with pytest.raises(AttributeError):
            setattr(claim([1.0]), name, True)


@pytest.mark.parametrize(
    ("bounds", "values", "statistic"),
    [
        ((None, None), [1.0], "iqm"),
        ((2.0, 1.0), [1.0], "iqm"),
        ((math.nan, None), [1.0], "iqm"),
        ((0.0, None), [], "iqm"),
        ((0.0, None), np.zeros((1, 1, 1)), "iqm"),
        ((0.0, None), [1.0], "mode"),
    ],
)
def test_claims_that_make_no_sense(bounds: Any, values: Any, statistic: str) -> None:
    with pytest.raises(ValueError, match="^c: "):
        Claim("c", "s", "e", tuple(values), *bounds, statistic)


def test_report_survives_the_disk(tmp_path: Path) -> None:
    made = example()
    path = made.save(tmp_path / "r")
    back = load_report(path.parent)
    assert json.dumps(back.to_json(), default=str) == json.dumps(
        load_report(path).to_json(), default=str
    )
    assert back.claims == made.claims
    assert back.numbers["return"] == made.numbers["return"]
    assert back.numbers["exploded"].values[1] == math.inf
    assert math.isnan(back.numbers["exploded"].values[2])
    assert back.tables["scores"][0]["score"] == made.tables["scores"][0]["score"]
    assert (back.notes, back.seeds, back.config) == (made.notes, 3, {"seeds": 3})


def test_report_json_is_strict_and_complete(tmp_path: Path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    data = json.loads(example().save(tmp_path).read_text(), parse_constant=refuse)
    first, second = data["claims"]
    asked = {"name", "source", "expected", "threshold", "measured", "interval", "seeds", "holds"}
    assert asked | {"command"} <= set(first)
    assert first["holds"] is True and first["command"] == "jaxrl-rollouts run toy"
    assert second["holds"] is False and second["measured"] == 9.0
    assert data["numbers"]["exploded"]["values"] == [1.0, "Infinity", None]
    assert second["threshold"] == [0.0, 1.0] and second["interval"] is None
    assert data["numbers"]["return"]["iqm"] == iqm([1.0, 2.0, 6.0])
    assert data["versions"]["python"] == platform.python_version()
    assert {"jax", "jaxlib", "flax", "optax", "numpy", "os", "cpu", "device"} <= set(
        data["versions"]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["claims"][1].update(holds=True), "claim d: holds: found True"),
        (lambda d: d["claims"][0].update(measured=99.0), "claim c: measured: found 99.0"),
        (lambda d: d["claims"][0].update(threshold=50.0), "claim c: holds: found True"),
        (lambda d: d["claims"][0].pop("values"), "claim c: found KeyError"),
        (lambda d: d["claims"][0].update(rule="about"), "claim c: found KeyError"),
        (lambda d: d.update(claims=["x"]), "claims: found TypeError"),
        (lambda d: d.pop("numbers"), "numbers: found nothing"),
        (lambda d: d.update(tables=[]), "tables: found list, expected an object"),
        (lambda d: d.update(format=7), "format: found 7"),
    ],
)
def test_edited_reports_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    path = example().save(tmp_path)
    data = json.loads(path.read_text())
    del data["digest"]
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises((DataError, CheckpointError), match=message) as caught:
        load_report(path)
    assert "\n" not in str(caught.value) and "report.json" in str(caught.value)


def test_names_are_checked() -> None:
    report = example()
    with pytest.raises(ValueError, match="claim c: found it twice"):
        report.claim(claim([1.0]))
    with pytest.raises(ValueError, match="picture: found '../x'"):
        report.picture("../x", pictures.figure()[0], "")


def test_publish_replaces_the_pictures_of_before(tmp_path: Path) -> None:
    results = tmp_path / "results"
    example().save(tmp_path / "one")
    target = publish(tmp_path / "one", results)
    assert target == results / "toy"
    (target / "README.md").write_text("kept")
    second = example()
    second.pictures["other"] = second.pictures.pop("curve")
    second.pictures["other"].file = "other.png"
    second.save(tmp_path / "two")
    publish(tmp_path / "two", results)
    assert sorted(p.name for p in target.iterdir()) == ["README.md", "other.png", "report.json"]
    (tmp_path / "two" / "other.png").unlink()
    with pytest.raises(CheckpointError, match="other.png: found no such file"):
        publish(tmp_path / "two", results)
    with pytest.raises(CheckpointError, match="report.json: found no such file"):
        load_report(tmp_path)


def test_printed_report_shows_outcomes() -> None:
    stream = io.StringIO()
    print_report(example(), Console(file=stream, width=140))
    text = stream.getvalue()
    assert "claims: 1 of 2 hold" in text
    assert re.search(r"✓ +c ", text) and re.search(r"✗ +d ", text)
    assert "a [note] with brackets" in text
    assert "2 (1 to 3)" in text and "points" in text


def wide() -> Report:
    report = Report("toy", "cpu", {}, "", seeds=5)
    columns = {f"a long name of column {i}": 1.25 + i for i in range(12)}
    report.table("wide", [{"method": "ravl", **columns}, {"method": "base", **columns}])
    return report


@pytest.mark.parametrize("terminal", [True, False])
def test_no_digit_of_a_wide_table_is_cut(terminal: bool) -> None:
    """A terminal of 80 columns gets it turned, a file in its whole width."""
    stream = io.StringIO()
    print_report(wide(), Console(file=stream, width=80, force_terminal=terminal, no_color=True))
    text = stream.getvalue()
    assert "…" not in text and text.count("12.25") == 2 and "a long name of column 11" in text
    assert (max(map(len, text.splitlines())) <= 90) is terminal  # with codes of bold type


def test_two_seeds_have_a_range_and_five_an_interval() -> None:
    assert format_number(summarize([1.0, 3.0])) == "2 (1 to 3)"
    assert re.fullmatch(r"3 \[.*, .*\]", format_number(summarize([1.0, 2.0, 3.0, 4.0, 5.0])))
    assert format_number(summarize([2.0])) == "2"
    report = Report("toy", "cpu", {}, "", seeds=2)
    report.number("few", [1.0, 3.0])
    table = report_table_markdown(report, "numbers")
    assert "interquartile mean over seeds (lowest to highest)" in table and "95 %" not in table
    report.claim(claim([4.0, 5.0]))
    assert "(4 to 5)" in report_table_markdown(report, "claims")


def test_pages_hold_everything_and_need_nothing(tmp_path: Path) -> None:
    report = example()
    report.note("<script>alert(1)</script> & so on")
    report.pictures["curve"].caption = "A curve, ![x](https://example.org/x.png)"
    report.save(tmp_path)
    write_pages(report, tmp_path)
    page, text = ((tmp_path / f"report.{kind}").read_text() for kind in ("html", "md"))
    for part in ("ravl", "2 (1 to 3)", "Claims: 1 of 2 hold", "A curve", '"seeds": 3'):
        assert part in text and part.replace('"', "&quot;") in page
    assert "![curve](curve.png)" in text and (tmp_path / "curve.png").is_file()
    assert "<script" not in page and "data:image/png;base64," in page
    inside = re.search(r'src="data:image/png;base64,([^"]+)"', page)
    assert inside and base64.b64decode(inside[1]) == (tmp_path / "curve.png").read_bytes()


def test_markdown() -> None:
    report = example()
    lines = report_table_markdown(report, "scores").splitlines()
    assert lines[0] == "| method | score | steps | ok | note |"
    assert lines[1] == "|---|---:|---:|---:|---:|"
    assert lines[2] == "| ravl | 2 (1 to 3) | 5 | yes | - |"
    assert lines[3] == "| base\\|x | nan | - | - | - |"
    assert "| **no** |" in report_table_markdown(report, "claims")
    with pytest.raises(KeyError, match="scores"):
        report_table_markdown(report, "other")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        (12345.6, "12,346"),
        (1.5e12, "1.5e+12"),
        (3, "3"),
        (False, "no"),
        (1234567, "1,234,567"),
        (None, "-"),
        ("x", "x"),
        ((1.0, 2.0), "1 to 2"),
        (50000, "50,000"),
        (math.inf, "inf"),
    ],
)
def test_number_formats(value: Any, text: str) -> None:
    assert format_number(value) == text


def test_provenance_and_clock() -> None:
    import jax
    import jax.numpy as jnp

    found = provenance()
    assert found["jax"] == jax.__version__ and found["device_count"] == len(jax.devices())
    function = jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x).T + 17.25)
    x = jnp.ones((3, 3))
    with Clock() as first:
        function(x)
    with Clock() as second:
        function(x)
    assert 0 < first.compile_seconds <= first.wall_seconds
    assert second.compile_seconds == 0 < second.wall_seconds
