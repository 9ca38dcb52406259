"""Results that are not lost: rows carry their preset, the better one is shown, the other kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from resperturb_reproduction.reproduce import results
from resperturb_reproduction.reproduce.declarations import BY_ID
from resperturb_reproduction.reproduce.results import Trained

from reproduction.tests.reproduce.examples import AUDIT, made, result, row, table
from resperturb.errors import UsageError


def kept(folder: Path, name: str = "cifar10-table") -> Trained:
    found = results.load(folder, name)
    assert isinstance(found, Trained)
    return found


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    whole = results.save(tmp_path, table())
    assert kept(tmp_path) == whole


def test_rows_of_two_presets_stand_in_one_result_and_the_better_is_shown(tmp_path: Path) -> None:
    results.save(tmp_path, result("cifar10-table", *(row("cifar10-table", k) for k in ("non-private", "gamma-4.5"))))
    results.save(tmp_path, table("paper", auc=0.75))
    found = kept(tmp_path)
    assert [(r.key, r.preset) for r in found.rows] == [
        ("non-private", "cpu"), ("non-private", "paper"), ("gamma-4.5", "cpu"),
    ]  # fmt: skip
    assert [(r.key, r.preset) for r in found.shown] == [("non-private", "paper"), ("gamma-4.5", "cpu")]
    assert [m.preset for m in found.made] == ["cpu", "paper"]
    # A lesser preset that comes later is kept too, and not shown.
    results.save(tmp_path, table("cpu", auc=0.6, seeds=2))
    assert [(r.key, r.preset) for r in kept(tmp_path).shown] == [("non-private", "paper"), ("gamma-4.5", "cpu")]


def test_a_row_that_is_not_attacked_yet_does_not_hide_one_that_is(tmp_path: Path) -> None:
    results.save(tmp_path, table("cpu"))
    better = table("paper")
    measured = {**better.rows[0].measured, "auc": None}
    results.save(tmp_path, replace(better, rows=(replace(better.rows[0], measured=measured),)))
    assert [r.preset for r in kept(tmp_path).rows] == ["cpu", "paper"]
    assert [r.preset for r in kept(tmp_path).shown] == ["cpu"]


def test_a_row_with_more_seeds_or_audits_is_not_replaced_by_one_with_fewer(tmp_path: Path) -> None:
    results.save(tmp_path, table(seeds=2))
    results.save(tmp_path, table(seeds=1, auc=0.9))
    assert kept(tmp_path).rows[0].seeds == (0, 1)
    audited = table(seeds=2)
    results.save(tmp_path, replace(audited, rows=(replace(audited.rows[0], audit=AUDIT),)))
    results.save(tmp_path, table(seeds=2))
    assert kept(tmp_path).rows[0].audit == AUDIT
    # Made at other settings it is another measurement.
    other = replace(table(seeds=1, auc=0.9), made=(made("cpu", "10 epochs instead of 200"),))
    results.save(tmp_path, other)
    assert kept(tmp_path).rows[0].seeds == (0,)


def test_trainings_are_counted_once(tmp_path: Path) -> None:
    results.save(tmp_path, table())
    results.save(tmp_path, table())
    assert kept(tmp_path).made[0].trainings == 1
    results.save(tmp_path, result("cifar10-table", row("cifar10-table", "gamma-4.5")))
    assert (kept(tmp_path).made[0].trainings, kept(tmp_path).made[0].seconds) == (2, 120.0)


def test_numbers_that_mean_nothing_are_not_put_among_those_that_do(tmp_path: Path) -> None:
    results.save(tmp_path, table("cpu"))
    with pytest.raises(UsageError, match="better rows than those of preset quick"):
        results.save(tmp_path, table("quick"))


def test_rows_that_are_no_longer_declared_are_dropped(tmp_path: Path) -> None:
    old = table()
    results.save(tmp_path, replace(old, rows=(*old.rows, replace(old.rows[0], key="gamma-99"))))
    results.save(tmp_path, table("paper"))
    assert {r.key for r in kept(tmp_path).rows} == {"non-private"}


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"schema": 99}', '{"schema": 2, "id": "cifar10-table", "kind": "table"}', "null"]
)
def test_a_damaged_result_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "cifar10-table.json").write_text(content)
    assert results.load(tmp_path, "cifar10-table") is None
    assert results.load_all(tmp_path) == {}


def test_the_results_that_are_published_can_be_read() -> None:
    folder = Path(__file__).parents[3] / "docs" / "results"
    found = results.load_all(folder)
    published = {path.stem for path in folder.glob("*.json") if json.loads(path.read_text()).get("kind")}
    assert found.keys() == published & BY_ID.keys()
