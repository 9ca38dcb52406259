"""The pages are written from the results alone, with every qualifier."""

from dataclasses import replace
from pathlib import Path

from resperturb_reproduction.reproduce import results
from resperturb_reproduction.reproduce.declarations import Printed
from resperturb_reproduction.reproduce.page import read_notes, write_pages
from resperturb_reproduction.reproduce.readings import Look, Watched
from resperturb_reproduction.reproduce.results import Computed

from reproduction.tests.reproduce.examples import AUDIT, made, result, row, table
from resperturb.files import plain


def pages(tmp_path: Path, *found: results.AnyResult) -> dict[str, str]:
    """Write the pages of these results, and read them."""
    folder = tmp_path / "docs" / "results"
    for one in found:
        results.save(folder, one)
    page = tmp_path / "docs" / "reproduction.md"
    written = write_pages(page, folder, results.load_all(folder))
    return {path.stem: path.read_text() for path in written}


def line(page: str, start: str) -> str:
    return next(one for one in page.splitlines() if one.startswith(start))


def test_a_table_has_its_notes_both_numbers_the_verdict_and_the_length(tmp_path: Path) -> None:
    notes = tmp_path / "docs" / "results" / "notes.md"
    notes.parent.mkdir(parents=True)
    notes.write_text("Not shown.\n\n## cifar10-table\n\nWe tried.\n\n## conclusion\n\nFive plain sentences.\n")
    found = pages(tmp_path, table(seeds=2))
    page = found["cifar10-table"]
    assert page.startswith("# CIFAR10: Table III\n\nWe tried.")
    assert line(page, "| ResNet8, non-private") == (
        "| ResNet8, non-private | contradicted | 0.610 ± 0.010 (0.757) | 0.900 ± 0.010 (1.000) | "
        "0.600 ± 0.010 (0.669) | preset cpu, 2 seeds |"
    )
    folded = page.split("<details><summary>How it was made</summary>")[1].split("</details>")[0]
    assert "20 epochs instead of 200" in folded
    assert "f" * 16 in folded
    assert "Five plain sentences." in found["reproduction"]
    assert "Not shown." not in found["reproduction"] + page


def test_the_headline_has_one_line_for_each_table(tmp_path: Path) -> None:
    rows = [row("cifar10-table", key, auc=auc, seeds=3) for key, auc in (("non-private", 0.7), ("gamma-4.5", 0.5))]
    top = pages(tmp_path, result("cifar10-table", *rows))["reproduction"]
    headline = line(top, "| [CIFAR10](reproduction/cifar10-table.md)")
    assert (
        "| **no** (3 seeds, reduced) | 0.600 ± 0.010 (0.695) | 0.500 ± 0.010 (0.511) | not trained yet |" in headline
    )
    assert "| lower AUC | ○ supported † |" in top
    assert "| AUC below DP-SGD | not measured |" in top
    assert "3 claims were tested in all, with 3 seeds each" in top


def test_rows_at_full_length_are_marked_and_what_is_missing_has_its_cost(tmp_path: Path) -> None:
    def cost(top: str) -> tuple[int, float]:
        trainings, hours = line(top, "| Tables I to V: three seeds |").split(" | ")[1:]
        return int(trainings), float(hours.rstrip(" |"))

    before = cost(pages(tmp_path, table(seeds=3))["reproduction"])
    rows = [row("cifar10-table", key, "paper", auc) for key, auc in (("non-private", 0.7), ("gamma-4.5", 0.5))]
    top = pages(tmp_path, result("cifar10-table", *rows))["reproduction"]
    assert "| lower AUC | ● supported |" in top
    # Both targets and the shadow model of the adaptive attack; DP-SGD still needs the paper's.
    assert cost(top)[0] == before[0] - 3
    assert cost(top)[1] < before[1]


def test_bfloat16_is_compared_with_32_bits(tmp_path: Path) -> None:
    rows = [row("cifar10-hypotheses", key, seeds=3) for key in ("non-private", "non-private-bfloat16")]
    page = pages(tmp_path, result("cifar10-hypotheses", *rows))["open-row"]
    start = "| ResNet8, non-private | preset cpu, 3 seeds | 0.900 / 0.900 (± 0.0"
    assert line(page, start)


def test_rows_at_decay_5e_4_have_their_verdicts_accuracies_by_draw_and_a_place_in_the_headline(
    tmp_path: Path,
) -> None:
    name, keys = "weight-decay", ("non-private-decay-5e-4", "gamma-4.5-decay-5e-4")
    plain_row, noisy = (row(name, key, "paper", seeds=3) for key in keys)
    averaged = noisy.measured["test_accuracy"]
    noisy = replace(noisy, measured={**noisy.measured, "averaged_test_accuracy": averaged}, audit=AUDIT)
    table_rows = (row("cifar10-table", key, "paper") for key in ("non-private", "gamma-4.5"))
    found = pages(tmp_path, result(name, plain_row, noisy), result("cifar10-table", *table_rows))
    page = found["open-row"]
    start = "| CIFAR10, En1 ResNet8, gamma 4.5, decay 5e-4 |"
    assert line(page, start).startswith(f"{start} contradicted | 0.610 ± 0.010 (0.511) |")
    answers = page.split("| noise off |")[1]
    assert line(answers, start) == f"{start} 0.600 ± 0.010 | 0.600 ± 0.010 | – |"
    assert "| On CIFAR10, noise lowers the AUC. | inconclusive (3 seeds)" in page
    assert "published row contradicted (3 seeds) |" in line(found["reproduction"], "| [CIFAR10]")


def test_harder_attacks_have_the_length_of_their_own_training(tmp_path: Path) -> None:
    paper, cpu = table("paper", auc=0.757), table("cpu", auc=0.58)
    plain_row = replace(paper.rows[0], measured={**paper.rows[0].measured, "adaptive_auc": None})
    audited = replace(cpu.rows[0], audit=replace(AUDIT, shadows=0), epochs=15)
    both = replace(paper, made=(*cpu.made, *paper.made), rows=(plain_row, audited))
    rows, harder = pages(tmp_path, both)["cifar10-table"].split("## Attacks not in the paper")
    assert "0.757 (0.757)" in rows
    assert "| 0.580 |" not in rows
    assert line(harder, "| ResNet8, non-private |") == (
        "| ResNet8, non-private | 15 epochs, 1 seed | 0.580 | 0.600 | 0.610 [0.580, 0.640] (rmia, no shadow models) |"
    )


def test_the_open_row_says_where_each_reading_ends(tmp_path: Path) -> None:
    near, beyond = Look(5, 0.76, 0.695, 0.51), Look(10, 0.97, 0.71, 0.60)
    paper = Printed(0.511, 0.760, 0.695)
    watched = [
        Watched("cifar10", f"En1 ResNet8, gamma 4.5, {name}", True, 0, epochs, paper, looks)
        for name, epochs, looks in (
            ("ends", 10, (beyond, replace(near, epoch=10))),
            ("passes", 10, (near, beyond)),
            ("unfinished", 160, (near,)),
        )
    ]
    readings = Computed("readings", "computed", (made("paper", ""),), "", {"watched": plain(watched)})
    # Rows with a small spread between seeds, to compare by.
    spreads = result("cifar10-table", *(row("cifar10-table", k, seeds=3) for k in ("non-private", "gamma-4.5")))
    drawn = tmp_path / "docs" / "results" / "readings.svg"
    drawn.parent.mkdir(parents=True)
    drawn.touch()
    page = pages(tmp_path, readings, spreads)["open-row"]
    endings = [one.split(" | ")[1] for one in page.splitlines() if one.startswith("| CIFAR10, gamma 4.5,")]
    assert endings == ["supported", "contradicted", "at epoch 5 of 160"]
    assert "passes on CIFAR10 ends at training accuracy 0.970 and test accuracy 0.710" in page
    assert line(page, "| CIFAR10, gamma 4.5, passes").endswith("| 0.760 / 0.695 / 0.510, 5 |")


def test_the_sweeps_share_one_page(tmp_path: Path) -> None:
    rows = [row("cifar10-sweep", key) for key in ("non-private", "en5-gamma-0.75")]
    page = pages(tmp_path, result("cifar10-sweep", *rows))["sweeps"]
    assert "| At gamma 0.75 the noise lowers the AUC of the attack. | inconclusive" in page
    rows = [row("idc-sweep", key, data="idc") for key in ("non-private", "en5-gamma-0.2")]
    page = pages(tmp_path, result("idc-sweep", *rows))["sweeps"]
    assert "| Fig. 4. At gamma 0.75 the noise lowers the AUC of the attack. | inconclusive" in page


def test_the_pages_are_the_same_from_the_same_results(tmp_path: Path) -> None:
    assert pages(tmp_path, table()) == pages(tmp_path)


def test_notes_belong_to_the_heading_above_them(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("## a-b\nfirst\n### inner\nmore\n## empty\n\n## c\nlast")
    assert read_notes(path) == {"a-b": "first\n### inner\nmore", "c": "last"}
