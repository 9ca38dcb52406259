"""The frontier: which defence costs the least accuracy for the leak that you accept."""

from resperturb.frontier.compare import Compared, compare
from resperturb.frontier.curve import Curve, leaks_of
from resperturb.frontier.defence import Defence, DefenceSetting, register_defence, settings_of
from resperturb.frontier.groups import GroupDifference, group_differences
from resperturb.frontier.result import FrontierResult, Recommendation, SettingResult, read_frontier, result_of

__all__ = [
    "Compared",
    "Curve",
    "Defence",
    "DefenceSetting",
    "FrontierResult",
    "GroupDifference",
    "Recommendation",
    "SettingResult",
    "compare",
    "group_differences",
    "leaks_of",
    "read_frontier",
    "register_defence",
    "result_of",
    "settings_of",
]
