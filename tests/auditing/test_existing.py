"""Audits of an existing model: its training set and a held-out set are given."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import resperturb as rp
from resperturb.auditing.function import rows_of
from resperturb.errors import UsageError
from tests.auditing.examples import training

ROWS = 300
LABELS = np.random.default_rng(0).integers(0, 2, ROWS)
MEMBERS, OTHERS = np.arange(0, 150), np.arange(150, 300)


def test_a_leak_of_this_model_is_found_without_and_with_a_recipe(tmp_path: Path) -> None:
    model = training(LABELS, 2.0)(MEMBERS, 0)
    alone = rp.audit_model(model, members=MEMBERS, nonmembers=OTHERS, labels=LABELS, out=None, quiet=True)
    assert alone.leaks
    assert alone.subject == "this model"
    assert any("Without a recipe" in caveat for caveat in alone.caveats)
    recipe = training(LABELS, 2.0)
    found = rp.audit_model(
        model, members=MEMBERS, nonmembers=OTHERS, labels=LABELS, recipe=recipe, shadows=8, jobs=1, quiet=True,
        out=tmp_path / "audit",
    )  # fmt: skip
    assert found.strongest.auc > alone.strongest.auc
    assert any("rmia-online" in note for note in found.notes)
    assert found.epsilon_lower.epsilon == 0
    assert "not decided by coins" in " ".join(found.epsilon_lower.assumptions) + found.epsilon_lower.words
    assert found.model.records == 150
    assert "this model" in found.report(tmp_path / "report.html").read_text().lower()


def test_two_sets_that_differ_are_detected_by_features_and_by_models(tmp_path: Path) -> None:
    model = training(LABELS, 0.0)(MEMBERS, 0)
    rng = np.random.default_rng(0)
    alike = rng.normal(size=(ROWS, 5))
    settings = {"members": MEMBERS, "nonmembers": OTHERS, "labels": LABELS, "quiet": True, "out": None}
    same = rp.audit_model(model, features=alike, **settings)
    assert not any("differ in distribution" in caveat for caveat in same.caveats)
    shifted = rp.audit_model(model, features=alike + np.isin(np.arange(ROWS), MEMBERS)[:, None], **settings)
    assert any("differ in distribution: a linear classifier" in caveat for caveat in shifted.caveats)

    def easier(indices: np.ndarray, seed: int) -> object:
        inner = training(LABELS, 0.0)(np.concatenate([indices]), seed)

        def predict(rows: np.ndarray) -> np.ndarray:
            p = inner(rows)
            sure = np.where(np.isin(rows, MEMBERS), 0.8, 0.0)[:, None]
            return (1 - sure) * p + sure * np.eye(2)[LABELS[rows]]

        return predict

    half = rng.normal(size=(ROWS // 2, 40))  # the same rows twice: a classifier learns the opposite of what holds
    opposed = rp.audit_model(model, features=np.concatenate([half, half[::-1]]), **settings)
    assert not any("differ in distribution" in caveat for caveat in opposed.caveats)

    found = rp.audit_model(
        easier(MEMBERS, 0), recipe=easier, shadows=4, jobs=1, **{**settings, "out": tmp_path / "shifted"}
    )
    assert any("models that saw neither" in caveat for caveat in found.caveats)

    patients = np.repeat(
        rng.normal(size=(ROWS // 10, 5)), 10, axis=0
    )  # a patient in two folds would give the set away
    grouped = rp.audit_model(model, features=patients, groups=np.arange(ROWS) // 10, **settings)
    assert not any("differ in distribution" in caveat for caveat in grouped.caveats)


def test_an_estimator_is_audited_with_a_table_or_a_sparse_matrix(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(ROWS, 4)) + LABELS[:, None]
    table = pd.DataFrame(numbers, columns=list("abcd")).assign(sex=rng.choice(["f", "m"], ROWS))
    table.loc[5, "a"] = np.nan
    columns = make_column_transformer((OneHotEncoder(), ["sex"]), remainder="passthrough")
    for number, (features, model) in enumerate(
        [
            (table, make_pipeline(columns, RandomForestClassifier(20))),
            (csr_array(numbers), RandomForestClassifier(20)),
        ]
    ):
        inside = np.isin(np.arange(ROWS), MEMBERS)
        model.fit(rows_of(features, MEMBERS), LABELS[MEMBERS])
        settings = {"members": inside, "nonmembers": ~inside, "labels": LABELS, "features": features, "quiet": True}
        assert rp.audit_model(model, out=tmp_path / f"{number}", **settings).leaks
        found = rp.audit_model(model, out=tmp_path / f"{number}", recipe=model, shadows=4, jobs=1, **settings)
        assert found.leaks
    model.fit(numbers, np.where(LABELS, "sick", "healthy"))
    with pytest.raises(UsageError, match="classes that the model was fitted on"):
        rp.audit_model(model, out=None, **settings)


@pytest.mark.parametrize("kind", [bool, float])
def test_an_estimator_may_have_been_fitted_on_classes_of_another_type(kind: type) -> None:
    features = np.random.default_rng(0).normal(size=(ROWS, 4)) + LABELS[:, None]
    settings = {"members": MEMBERS, "nonmembers": OTHERS, "labels": LABELS, "features": features, "quiet": True}
    audits = []
    for labels in (LABELS, LABELS.astype(kind)):
        model = RandomForestClassifier(20, random_state=0).fit(features[MEMBERS], labels[MEMBERS])
        audits.append(rp.audit_model(model, out=None, **settings))
    assert audits[0].attacks == audits[1].attacks


def test_a_model_that_exists_is_queried_each_time_and_its_shadow_models_are_kept(tmp_path: Path) -> None:
    trained: list[int] = []

    def recipe(indices: np.ndarray, seed: int) -> object:
        trained.append(seed)
        return training(LABELS, 2.0)(indices, seed)

    found = [
        rp.audit_model(
            training(LABELS, leak)(MEMBERS, 0), members=MEMBERS, nonmembers=OTHERS, labels=LABELS, recipe=recipe,
            shadows=4, jobs=1, quiet=True, out=tmp_path / "audit",
        )
        for leak in (0.0, 3.0)
    ]  # fmt: skip
    assert len(trained) == 4
    assert [one.leaks for one in found] == [False, True]


def test_a_recipe_of_another_kind_than_the_model_is_refused_by_its_first_model(tmp_path: Path) -> None:
    trained: list[int] = []

    def noisy(indices: np.ndarray, seed: int) -> object:
        trained.append(seed)
        inner, rng = training(LABELS, 1.0)(indices, seed), np.random.default_rng(seed)
        return lambda rows: 0.8 * inner(rows) + 0.2 * rng.dirichlet([1, 1], len(rows))

    with pytest.raises(UsageError, match=r"model 1 was queried by served x 16, and model 0 by served x 1; every"):
        rp.audit_model(
            training(LABELS, 1.0)(MEMBERS, 0), members=MEMBERS, nonmembers=OTHERS, labels=LABELS, recipe=noisy,
            shadows=4, jobs=1, quiet=True, out=tmp_path / "audit",
        )  # fmt: skip
    assert len(trained) == 1


def test_columns_with_other_indexes_are_refused() -> None:
    features = pd.DataFrame(np.random.default_rng(0).normal(size=(ROWS, 4)))
    groups = pd.Series(np.arange(ROWS), name="patient").sample(frac=1, random_state=0)
    model = RandomForestClassifier(5).fit(features.iloc[MEMBERS], LABELS[MEMBERS])
    sets = {"members": MEMBERS, "nonmembers": OTHERS, "out": None, "quiet": True}
    message = r"groups and features have different pandas indexes; align them by groups.loc\[features.index\]"
    with pytest.raises(UsageError, match=message):
        rp.audit_model(model, features=features, labels=LABELS, groups=groups, **sets)
    with pytest.raises(UsageError, match=message):
        rp.audit(RandomForestClassifier(5), features, LABELS, groups=groups, out=None, quiet=True)
    with pytest.raises(UsageError, match="labels and features have different pandas indexes"):
        rp.audit(RandomForestClassifier(5), features, pd.Series(LABELS, groups.index), out=None, quiet=True)
    p = np.full((ROWS, 2), 0.5)
    with pytest.raises(UsageError, match="groups and labels have different pandas indexes"):
        rp.audit_predictions(p, np.arange(ROWS) < 150, pd.Series(LABELS), groups=groups)
    for same in (groups.loc[features.index], groups.to_numpy()):
        rp.audit_model(model, features=features, labels=pd.Series(LABELS), groups=same, **sets)


def test_wrong_sets_are_refused() -> None:
    model = training(LABELS, 0.0)(MEMBERS, 0)
    for wrong, sentence in (
        ({"members": MEMBERS, "nonmembers": MEMBERS[:5]}, "5 rows are among members and non-members"),
        ({"members": [], "nonmembers": OTHERS}, "members must be row numbers"),
        ({"members": np.ones(ROWS - 1, bool), "nonmembers": OTHERS}, "members must be row numbers"),
        ({"members": [ROWS], "nonmembers": OTHERS}, "from 0 to 299"),
    ):
        with pytest.raises(UsageError, match=sentence):
            rp.audit_model(model, labels=LABELS, out=None, **wrong)
    leaky, swapped = training(LABELS, 3.0), {"members": OTHERS, "nonmembers": MEMBERS, "labels": LABELS}
    for recipe in (None, leaky):
        with pytest.raises(UsageError, match="better on non-members than on members, far beyond chance"):
            rp.audit_model(leaky(MEMBERS, 0), **swapped, recipe=recipe, shadows=4, jobs=1, quiet=True, out=None)
    with pytest.raises(UsageError, match="have members and non-members"):
        rp.audit_model(
            model, members=MEMBERS, nonmembers=OTHERS, labels=LABELS, groups=np.arange(ROWS) // 100, out=None
        )
