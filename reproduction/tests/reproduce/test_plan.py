"""What the reproduction declares, and which trainings follow from it."""

import re

import pytest
from resperturb_reproduction.reproduce import plan
from resperturb_reproduction.reproduce.declarations import (
    BY_ID,
    EXPERIMENTS,
    Cell,
    chosen,
    with_attacks,
)
from resperturb_reproduction.reproduce.presets import PRESETS, preset_named, reduction

from resperturb.errors import UsageError
from resperturb.training import Dpsgd

IDS = set(
    """
sde-additive sde-multiplicative idc-examples idc-table idc-table-multiplicative mnist-table cifar10-table
cifar100-table idc-sweep cifar10-sweep cifar100-sweep idc-sweep-multiplicative cifar10-sweep-multiplicative
cifar100-sweep-multiplicative cifar10-ensemble cifar10-no-skip roc-additive roc-multiplicative budgets generalisation
gamma-curve cifar10-hypotheses gamma-times-dt
""".split()  # noqa: SIM905
)


def digests(*ids: str, preset: str = "cpu") -> set[str]:
    return {config.digest for config in plan.trainings(chosen(list(ids)), PRESETS[preset])}


def test_every_table_and_figure_has_its_name() -> None:
    assert set(BY_ID) >= IDS
    assert len(BY_ID) == len(EXPERIMENTS)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_experiment_can_be_planned_at_every_preset(preset: str) -> None:
    for experiment in EXPERIMENTS:
        for cell in experiment.cells:
            for seed in range(PRESETS[preset].seeds_of(experiment)):
                plan.needs(experiment, cell, PRESETS[preset], seed)


def test_tables_have_the_three_attacks_and_the_paper_s_numbers() -> None:
    for name in ("idc-table", "idc-table-multiplicative", "mnist-table", "cifar10-table", "cifar100-table"):
        table = BY_ID[name]
        assert table.attacks == ("paper", "adaptive", "audit")
        for cell in table.cells[:3]:  # what follows is ours
            assert cell.paper is not None
            assert None not in (cell.paper.auc, cell.paper.train_accuracy, cell.paper.test_accuracy)


def test_roc_curves_train_nothing_that_the_sweeps_have_not_trained() -> None:
    for strategy, ending in (("additive", ""), ("multiplicative", "-multiplicative")):
        sweeps = [f"{data}-sweep{ending}" for data in ("idc", "cifar10", "cifar100")]
        assert digests(f"roc-{strategy}") == digests(*sweeps)


def test_the_ensemble_and_the_ablation_share_five_networks_with_the_sweep() -> None:
    assert len(digests("cifar10-sweep") & digests("cifar10-ensemble")) == 4  # three gammas and the shadow
    assert len(digests("cifar10-sweep") & digests("cifar10-no-skip")) == 2


def test_both_idc_tables_share_dpsgd() -> None:
    shared = [c for c in plan.trainings(chosen(["idc-table"]), PRESETS["cpu"]) if c.method.private]
    assert shared
    assert {c.digest for c in shared} <= digests("idc-table-multiplicative")


def test_the_paper_s_attacker_trains_a_standard_network_against_everything() -> None:
    scale = PRESETS["paper"].scale("cifar10", "table")
    table = BY_ID["cifar10-table"]
    for cell in table.cells:
        shadow = plan.paper_shadow(table, cell, scale, 0)
        assert shadow == plan.paper_shadow(table, Cell("cifar10"), scale, 0)
        assert not shadow.method.private
        assert shadow.perturbation is None


def test_an_adaptive_attacker_trains_as_the_target_was_trained() -> None:
    table = BY_ID["cifar10-table"]
    for cell in table.cells:
        need = plan.needs(table, cell, PRESETS["paper"], seed=0)
        shadow = need.shadows["adaptive"]
        assert (shadow.method, shadow.perturbation) == (need.target.method, need.target.perturbation)
        assert all(s.data.part == "shadow_train" for s in need.shadows.values())


def test_an_audit_is_planned_with_as_many_trainings_as_it_will_make() -> None:
    table = BY_ID["cifar10-table"]
    need = plan.needs(table, table.cells[2], PRESETS["cpu"], seed=0, audit=True)
    assert len({config.digest for config in need.shadows.values()}) == PRESETS["cpu"].shadows
    assert {config.perturbation for config in need.shadows.values()} == {need.target.perturbation}


def test_seeds_differ_in_their_weights_and_in_their_quarters() -> None:
    scale = PRESETS["cpu"].scale("cifar10", "table")
    one, other = (plan.target_config(Cell("cifar10"), scale, seed) for seed in (0, 1))
    assert (one.seed, one.data.split_seed) != (other.seed, other.data.split_seed)


def test_the_paper_preset_has_the_paper_s_settings() -> None:
    paper = PRESETS["paper"]
    idc = plan.target_config(Cell("idc"), paper.scale("idc", "table"), 0)
    assert (idc.epochs, idc.schedule, idc.batch_size, idc.lr, idc.augment) == (100, "quarter", 128, 0.1, "none")
    dpsgd = plan.target_config(Cell("cifar10", dpsgd=True), paper.scale("cifar10", "table"), 0)
    assert isinstance(dpsgd.method, Dpsgd)
    assert (dpsgd.epochs, dpsgd.method.noise_multiplier, dpsgd.method.clip) == (100, 1.1, 1.0)
    noisy = plan.target_config(BY_ID["cifar10-table"].cells[2], paper.scale("cifar10", "table"), 0)
    assert noisy.perturbation.gamma == 4.5
    assert noisy.perturbation.input_std == 2.25
    assert all(reduction(data, "table", paper) == "" for data in paper.table)


def test_quick_uses_no_data_but_the_embedded_and_says_so() -> None:
    for data, scale in PRESETS["quick"].table.items():
        assert scale.spec == "fashion-sample"
        assert "stands in" in reduction(data, "table", PRESETS["quick"])


def test_the_first_seed_of_every_table_comes_first() -> None:
    ordered = plan.rounds(EXPERIMENTS, PRESETS["cpu"])
    assert {unit.experiment.id for unit in ordered[0]} == {e.id for e in EXPERIMENTS if "audit" in e.attacks}
    assert all(unit.seed == 0 and not unit.audit for unit in ordered[0])
    assert all(unit.audit for unit in ordered[1])
    assert {u.experiment.kind for u in ordered[-1]} >= {"sweep", "ensemble", "roc", "generalisation"}


def test_the_cpu_preset_is_planned_for_about_ten_hours_on_two_cores() -> None:
    hours = sum(map(plan.estimate, plan.trainings(EXPERIMENTS, PRESETS["cpu"]))) / 3600
    assert 10 < hours < 20  # attacks and the queries of audits come on top


def test_rows_are_chosen_by_their_keys_and_train_no_others() -> None:
    (table,) = chosen(["cifar10-table"], ["non-private", "gamma-4.5"])
    (cut,) = with_attacks([table], ["paper"])
    configs = plan.trainings([cut], preset_named("paper", seeds=1))
    assert {(c.data.part, getattr(c.perturbation, "gamma", 0.0)) for c in configs} == {
        ("target_train", 0.0),
        ("target_train", 4.5),
        ("shadow_train", 0.0),
    }
    assert {c.epochs for c in configs} == {200}
    with pytest.raises(UsageError, match=r"no row 'gamma-5' in cifar10-table; its rows are non-private, dp-sgd"):
        chosen(["cifar10-table"], ["gamma-5"])
    with pytest.raises(UsageError, match="there is no attack 'guess'"):
        with_attacks([table], ["guess"])
    (of_mnist,) = chosen(["weight-decay"], ["non-private-decay-5e-4"], ["mnist"])
    assert [(cell.data, cell.gamma) for cell in of_mnist.cells] == [("mnist", 0.0)]
    with pytest.raises(UsageError, match="no data set 'mnist' in cifar10-table; its data sets are cifar10"):
        chosen(["cifar10-table"], data=["mnist"])


def test_the_attacker_of_weight_decay_trains_a_standard_network_at_that_decay() -> None:
    experiment = BY_ID["weight-decay"]
    for cell in experiment.cells:
        need = plan.needs(experiment, cell, PRESETS["paper"], seed=0)
        target, shadow = need.target, need.shadows["paper"]
        assert shadow.perturbation is None
        assert (shadow.weight_decay, shadow.epochs) == (target.weight_decay, target.epochs)
        assert target.weight_decay == 5e-4


def test_keys_of_an_experiment_are_unique_for_each_data_set() -> None:
    for experiment in EXPERIMENTS:
        keys = [(cell.data, cell.key) for cell in experiment.cells]
        assert len(set(keys)) == len(keys), experiment.id


def test_hypotheses_are_chosen_at_thirty_epochs_and_trained_at_the_paper_s() -> None:
    hypotheses = BY_ID["cifar10-hypotheses"]
    for name, epochs in (("cpu", 30), ("paper", 200)):
        configs = [plan.needs(hypotheses, cell, PRESETS[name], 0).target for cell in hypotheses.cells]
        assert {(c.epochs, c.batch_size, c.data.limit) for c in configs} == {(epochs, 128, None)}
        assert len({c.digest for c in configs}) == len(configs)


def test_estimates_follow_epochs_networks_and_method() -> None:
    scale = PRESETS["paper"].scale("cifar10", "table")
    one, five, private = (
        plan.estimate(plan.target_config(cell, scale, 0))
        for cell in (
            Cell("cifar10"),
            BY_ID["cifar10-sweep"].cells[1],
            Cell("cifar10", dpsgd=True),
        )
    )
    assert 4 < five / one < 6
    assert 1 < private / one < 2  # three times as long an epoch, half as many of them


def test_seeds_can_be_overridden_for_every_row() -> None:
    table, preset = BY_ID["cifar10-table"], preset_named("cpu", seeds=5)
    assert preset.seeds_of(table) == 5


def test_no_claim_compares_a_row_that_is_not_there() -> None:
    for experiment in EXPERIMENTS:
        for claim in experiment.claims:
            assert {claim.lower, claim.higher} <= set(experiment.cells), experiment.id


def test_ids_are_fit_for_files_and_links() -> None:
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in BY_ID)
