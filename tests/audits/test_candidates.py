"""Whose membership is in question, and who was in: for every part, with coins, groups and canaries."""

import numpy as np
import pytest

from resperturb.audits.candidates import candidate_images
from resperturb.bounds.audit_result import RECORD
from resperturb.training.config import CanaryConfig, DataConfig
from resperturb.training.inputs import load_inputs, out_indices

CANARIES = CanaryConfig(mislabelled=10, blank=6)


def data(**changes: object) -> DataConfig:
    return DataConfig(**{"spec": "fashion-sample", "limit": 200, "part": "target_train", **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["target_train", "audit", "half", "all"])
@pytest.mark.parametrize("canaries", [None, CANARIES])
def test_a_model_is_trained_on_exactly_its_members(part: str, canaries: CanaryConfig | None) -> None:
    config = data(part=part, canaries=canaries, subset_seed=3)
    queried = candidate_images(config, population=20)
    inputs = load_inputs(config)
    trained = {image.numpy().tobytes() for image in inputs.members(part).images}
    members = queried.members(config)
    for row, member in enumerate(members):
        assert (queried.images.images[row].numpy().tobytes() in trained) == member
    if part != "all":
        assert len(inputs.members(part)) == members.sum()


def test_the_target_half_is_asked_about_then_canaries_then_a_population() -> None:
    config = data(canaries=CANARIES)
    queried = candidate_images(config, population=20)
    assert queried.kinds.tolist() == [RECORD] * 100 + ["mislabelled"] * 10 + ["blank"] * 6
    assert len(queried.images) == 116 + 20
    quarters = load_inputs(config).quarters
    assert set(queried.indices.tolist()) == {*quarters.target_train.tolist(), *quarters.target_out.tolist()}


def test_a_model_of_all_images_can_only_be_asked_about_canaries() -> None:
    queried = candidate_images(data(part="all", canaries=CANARIES), population=20)
    assert RECORD not in queried.kinds
    assert len(queried) == 16


def test_two_shadows_of_opposite_seeds_share_nobody_and_miss_nobody() -> None:
    one, other = (data(part="audit", canaries=CANARIES, subset_seed=seed) for seed in (8, 9))
    queried = candidate_images(one, population=0)
    assert (queried.members(one) ^ queried.members(other)).all()


def test_out_and_in_are_the_target_half() -> None:
    config = data(part="audit", subset_seed=5)
    inputs = load_inputs(config)
    both = np.concatenate([inputs.member_indices("audit"), out_indices(inputs, "audit")])
    assert sorted(both.tolist()) == inputs.target_half.tolist()


def test_a_cut_and_coins_are_different_designs() -> None:
    assert candidate_images(data()).candidates().neighbours == "swap"
    assert candidate_images(data(part="audit")).candidates().neighbours == "add_remove"
    assert candidate_images(data(part="half")).candidates().neighbours == "add_remove"


def test_models_of_halves_see_all_images_but_a_population() -> None:
    config = data(part="half", subset_seed=4)
    inputs = load_inputs(config)
    queried = candidate_images(config)
    assert len(queried) == 180
    assert not set(inputs.held_back.tolist()) & set(queried.indices.tolist())
    assert len(queried.images) - len(queried) == 20
    assert 60 < len(inputs.members("half")) < 120


def test_other_candidates_have_another_digest() -> None:
    assert candidate_images(data()).digest != candidate_images(data(canaries=CANARIES)).digest
    assert candidate_images(data()).digest == candidate_images(data(part="audit", subset_seed=4)).digest


def test_who_belongs_together_is_in_or_out_together(tmp_path: object) -> None:
    import torch

    from resperturb.data.images import ImageSet
    from resperturb.training.inputs import Inputs

    groups = np.array([f"patient {i // 5}" for i in range(200)])
    images = torch.arange(200, dtype=torch.uint8).reshape(200, 1, 1, 1).expand(200, 1, 8, 8).contiguous()
    whole = ImageSet(images, torch.arange(200) % 2, ("a", "b"), groups, "patients")
    inputs = Inputs(whole, whole, split_seed=0, subset_seed=2)
    chosen = inputs.member_indices("audit")
    assert 0 < len(chosen) < len(inputs.target_half)
    others = np.setdiff1d(inputs.target_half, chosen)
    assert not set(groups[chosen]) & set(groups[others])
