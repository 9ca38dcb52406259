"""The pages are written from the results alone, with every qualifier."""

from dataclasses import replace
from pathlib import Path

from resperturb_reproduction.reproduce import results
from resperturb_reproduction.reproduce.page import read_notes, write_pages

from reproduction.tests.reproduce.examples import AUDIT, result, row, table


def pages(tmp_path: Path, *found: results.AnyResult) -> dict[str, str]:
    """Write the pages of these results, and read them."""
    folder = tmp_path / "docs" / "results"
    for one in found:
        results.save(folder, one)
    page = tmp_path / "docs" / "reproduction.md"
    written = write_pages(page, folder, results.load_all(folder))
    return {path.stem: path.read_text() for path in written}


def test_an_experiment_has_a_page_with_both_numbers_the_preset_and_the_notes(tmp_path: Path) -> None:
    notes = tmp_path / "docs" / "results" / "notes.md"
    notes.parent.mkdir(parents=True)
    notes.write_text(
        "Not shown.\n\n## cifar10-table\n\nWe tried *twice*.\n\n## conclusion\n\nFive plain sentences.\n"
    )
    (notes.parent / "cifar10-table.png").write_bytes(b"picture")
    found = pages(tmp_path, table())
    page = found["cifar10-table"]
    assert "| 0.757 | 0.610 ± 0.010 |" in page
    assert "| cpu |" in page
    assert "differs at reduced settings (one seed)" in page
    assert "](../results/cifar10-table.png)" in page
    assert "We tried *twice*." in page
    assert "1 of 3" in page
    folded = page.split("<details><summary>How it was made</summary>")[1].split("</details>")[0]
    assert "20 epochs instead of 200" in folded
    assert "f" * 16 in folded
    top = found["reproduction"]
    assert "[cifar10-table](reproduction/cifar10-table.md)" in top
    assert "Five plain sentences." in top
    assert "| idc-table | Table I | | not measured yet |" in top
    assert "core-hours" in top
    assert "Not shown." not in top + page


def test_the_matrix_has_a_sign_for_each_claim_and_keeps_its_qualifiers(tmp_path: Path) -> None:
    rows = (
        row("cifar10-table", "non-private", auc=0.7, seeds=3),
        row("cifar10-table", "gamma-4.5", auc=0.5, seeds=3),
        row("cifar10-table", "dp-sgd", auc=0.6),
    )
    top = pages(tmp_path, result("cifar10-table", *rows))["reproduction"]
    assert "| lower AUC | ✓ (reduced) |" in top
    assert "| AUC below DP-SGD | seen once: as claimed (reduced) |" in top
    assert "3 claims were tested over several seeds. At 95%, chance alone would decide about 0.2 of them" in top
    assert "| claims over several seeds: holds | 1 | 0 | 1 |" in top
    assert "| claims seen once, at the best preset | 2 (1 as claimed, 1 no clear difference) | 0 | 2 |" in top


def test_one_training_at_the_best_preset_does_not_hide_what_several_seeds_said_at_a_lower_one(tmp_path: Path) -> None:
    keys, aucs = ("non-private", "gamma-4.5"), (0.7, 0.5)
    lower = result(
        "cifar10-table", *(row("cifar10-table", k, auc=a, seeds=3) for k, a in zip(keys, aucs, strict=True))
    )
    best = result(
        "cifar10-table", *(row("cifar10-table", k, auc=a, preset="paper") for k, a in zip(keys, aucs, strict=True))
    )
    found = pages(tmp_path, lower, best)
    assert "| lower AUC | seen once: as claimed; ✓ (reduced) |" in found["reproduction"]
    assert "3 of them at a lower preset than the best" in found["reproduction"]
    assert "Over several seeds: *holds at reduced settings (3 seeds)*" in found["cifar10-table"]


def test_rows_at_the_paper_s_settings_are_counted_apart_and_what_is_missing_is_said(tmp_path: Path) -> None:
    top = pages(tmp_path, table("paper", auc=0.757))["reproduction"]
    assert "| rows with printed numbers: differs | 1 | 1 | 0 |" in top
    assert "- cifar10-table: ResNet8, DP-SGD; En1 ResNet8, gamma 4.5;" in top


def test_the_strongest_attack_stands_with_its_interval_and_what_it_was_chosen_from(tmp_path: Path) -> None:
    one = table()
    page = pages(tmp_path, replace(one, rows=(replace(one.rows[0], audit=replace(AUDIT, shadows=0)),)))
    assert "| 0.610 [0.580, 0.640] (rmia; best of 13 attacks, no shadows) |" in page["cifar10-table"]


def test_harder_attacks_stand_apart_with_the_preset_and_the_accuracies_of_their_own_training(tmp_path: Path) -> None:
    long, paper = table("paper", auc=0.757), table("cpu", auc=0.58)
    plain = replace(long.rows[0], measured=replace(long.rows[0].measured, adaptive_auc=None))
    audited = replace(paper.rows[0], audit=AUDIT, epochs=15)
    both = replace(long, made=(*paper.made, *long.made), rows=(plain, audited))
    page = pages(tmp_path, both)["cifar10-table"]
    rows, harder = page.split("**Attacks that the paper did not make.**")
    assert "0.757 ±" in rows
    assert "0.580 ±" not in rows
    line = next(line for line in harder.splitlines() if line.startswith("| ResNet8, non-private | cpu, 15 epochs |"))
    assert "| 0.580 ±" in line
    assert "0.610 [0.580, 0.640]" in line


def test_an_adaptive_attack_on_a_longer_training_stands_beside_the_audit_of_a_shorter_one(tmp_path: Path) -> None:
    longer, shorter = table("long", auc=0.7), table("cpu", auc=0.58)
    both = replace(
        longer, made=(*shorter.made, *longer.made), rows=(*longer.rows, replace(shorter.rows[0], audit=AUDIT))
    )
    harder = pages(tmp_path, both)["cifar10-table"].split("**Attacks that the paper did not make.**")[1]
    lines = [line for line in harder.splitlines() if line.startswith("| ResNet8, non-private |")]
    assert ["0.610 [" in line for line in lines] == [True, False]
    assert ["0.720 ±" in line for line in lines] == [False, True]


def test_a_summary_keeps_what_qualifies_it(tmp_path: Path) -> None:
    keys = ("non-private", "gamma-4.5")
    rows = [row("cifar10-table", key, auc=auc, seeds=3) for key, auc in zip(keys, (0.7, 0.5), strict=True)]
    top = pages(tmp_path, result("cifar10-table", *rows))["reproduction"]
    line = next(line for line in top.splitlines() if line.startswith("| [cifar10-table]"))
    assert "1 claim: holds at reduced settings (3 seeds)" in line
    assert "2 claims: not measured" in line


def test_the_pages_are_the_same_from_the_same_results(tmp_path: Path) -> None:
    assert pages(tmp_path, table()) == pages(tmp_path)


def test_notes_belong_to_the_heading_above_them(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("## a-b\nfirst\n### inner\nmore\n## empty\n\n## c\nlast")
    assert read_notes(path) == {"a-b": "first\n### inner\nmore", "c": "last"}
