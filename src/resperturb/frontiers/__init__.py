"""The frontier: which defence costs the least accuracy for the leak that you accept."""

from typing import TYPE_CHECKING

from resperturb.frontiers.api import frontier
from resperturb.frontiers.defence import Defence, Setting, register_defence, settings_of
from resperturb.frontiers.result import FrontierResult, Recommendation, SettingResult, read_frontier
from resperturb.frontiers.study import StudiedSetting, Study, StudyPlan
from resperturb.lazy import lazy_names

if TYPE_CHECKING:
    from resperturb.frontiers.recipe import recipe_study

__all__ = [
    "Defence",
    "FrontierResult",
    "Recommendation",
    "Setting",
    "SettingResult",
    "StudiedSetting",
    "Study",
    "StudyPlan",
    "frontier",
    "read_frontier",
    "recipe_study",
    "register_defence",
    "settings_of",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, {"recipe": ["recipe_study"]})  # it needs the trainer, which takes long to load
