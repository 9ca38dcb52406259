"""Third-party networks for the tests."""

import torch


def pytest_configure() -> None:
    # torchvision's compiled operators do not load beside every build of torch; its models do not need them.
    for operator in ("nms", "qnms"):
        try:
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        except RuntimeError:  # it is there
            return
