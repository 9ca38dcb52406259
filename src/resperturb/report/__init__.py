"""The report of a run or an audit, and the one look of every figure. The module names say what each answers."""

from resperturb.report.figures import (
    BLACK,
    BLUE,
    COLUMN,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PAGE,
    PALETTE,
    PURPLE,
    SKY_BLUE,
    VERMILLION,
    YELLOW,
    paper_style,
    save_figure,
)

__all__ = [
    "BLACK",
    "BLUE",
    "COLUMN",
    "GREEN",
    "GREY",
    "INK",
    "ORANGE",
    "PAGE",
    "PALETTE",
    "PURPLE",
    "SKY_BLUE",
    "VERMILLION",
    "YELLOW",
    "paper_style",
    "save_figure",
]
