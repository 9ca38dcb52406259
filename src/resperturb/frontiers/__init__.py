"""The frontier: which defence costs the least accuracy for the leak that you accept."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resperturb.frontiers.api import frontier
    from resperturb.frontiers.compare import Compared, compare
    from resperturb.frontiers.curve import Curve, leaks_of
    from resperturb.frontiers.defence import Defence, DefenceSetting, register_defence, settings_of
    from resperturb.frontiers.groups import GroupDifference, group_differences
    from resperturb.frontiers.recipe import recipe_study
    from resperturb.frontiers.result import FrontierResult, Recommendation, SettingResult, read_frontier, result_of
    from resperturb.frontiers.study import StudiedSetting, Study, StudyPlan

_ROOMS = {
    "Compared": "compare",
    "Curve": "curve",
    "Defence": "defence",
    "DefenceSetting": "defence",
    "FrontierResult": "result",
    "GroupDifference": "groups",
    "Recommendation": "result",
    "SettingResult": "result",
    "StudiedSetting": "study",
    "Study": "study",
    "StudyPlan": "study",
    "compare": "compare",
    "frontier": "api",
    "group_differences": "groups",
    "leaks_of": "curve",
    "read_frontier": "result",
    "recipe_study": "recipe",
    "register_defence": "defence",
    "result_of": "result",
    "settings_of": "defence",
}
__all__ = [
    "Compared",
    "Curve",
    "Defence",
    "DefenceSetting",
    "FrontierResult",
    "GroupDifference",
    "Recommendation",
    "SettingResult",
    "StudiedSetting",
    "Study",
    "StudyPlan",
    "compare",
    "frontier",
    "group_differences",
    "leaks_of",
    "read_frontier",
    "recipe_study",
    "register_defence",
    "result_of",
    "settings_of",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _ROOMS:
            raise AttributeError(f"module 'resperturb.frontiers' has no attribute {name!r}")
        return getattr(importlib.import_module(f"resperturb.frontiers.{_ROOMS[name]}"), name)
