"""The figure of a frontier as SVG: accuracy over leak, for typical records and for the most exposed.

One line per defence runs through its strengths, and each point has a cross for the intervals of both axes. Settings
that leak less than ordinary regularisation of their accuracy, by the comparison of the result, are drawn strongly and
labelled; all others are pale. The pale region is dominated by ordinary regularisation: something ordinary is at least
as accurate and leaks no more. Settings that lose much accuracy are named below the panels, so that they do not press
the others together.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from resperturb.frontiers.curve import CANARY_TPR, PRIMARY, tpr_name
from resperturb.frontiers.result import FrontierResult, Measured, SettingResult, Stage

WIDTH, HEIGHT = 960, 440
TOP, BOTTOM, LEFT, GAP, RIGHT = 44, 64, 58, 190, 190
LETTER = 12
# The largest loss of accuracy that is drawn.
DRAWN = 0.25
# Okabe and Ito's colours, dark enough for a white page: regularisation, noise, losses, formal methods, others.
HUES = ("#0063A5", "#B35900", "#00745A", "#8A3A73", "#555555")
NOISE, LOSSES = ("additive", "multiplicative", "ensemble"), ("relaxloss", "hamp")
MARKS = ("circle", "diamond", "triangle", "cross")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
# Opacity of settings that are not told apart from ordinary regularisation, or are part of it.
PALE = 0.4
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:var(--i,#222)}.axis{stroke:var(--i,#222);fill:none}"
    ".grid{stroke:var(--i,#222);opacity:.12}.beaten{fill:#0063A5;opacity:.10}"
    "@media (prefers-color-scheme:dark){svg{--i:#ddd}.d{filter:brightness(1.6)}}"
)
ENDPOINTS = {
    PRIMARY: "typical records: AUC",
    CANARY_TPR: "canaries: TPR at 1% FPR",
    tpr_name(0.01): "records: TPR at 1% FPR",
}


@dataclass(frozen=True)
class Panel:
    """One panel: the endpoint on the x axis, where it stands, and the values at its edges."""

    endpoint: str
    left: float
    width: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, leak: float, accuracy: float) -> tuple[float, float]:
        """Place a point, in pixels."""
        across = (leak - self.x[0]) / (self.x[1] - self.x[0])
        up = (accuracy - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + across * self.width, HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


class End(NamedTuple):
    """The end of a defence's line, and its label."""

    y: float
    text: str
    hue: str
    mark: str
    strong: bool


def figure(result: FrontierResult, limits: Mapping[str, float] | None = None) -> str:
    """Draw a frontier as an SVG element that stands alone; limits of a policy, by endpoint, are lines."""
    start, least = result.settings[0], max(one.final.accuracy.value for one in result.settings) - DRAWN
    drawn = [one for one in result.settings if one is start or one.final.accuracy.value >= least]
    families = _families(result)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="'
        f'{escape(alt_text(result), quote=True)}"><style>{STYLE}</style>'
    ]
    for number, panel in enumerate(_panels([one.final for one in drawn])):
        lines += [*_axes(panel, first=number == 0), *_dominated(panel, result)]
        if limits and panel.endpoint in limits:
            x, floor = panel.at(limits[panel.endpoint], panel.y[0])
            lines.append(f'<path class="axis" stroke-dasharray="2 4" d="M{x:.1f},{TOP}V{floor:.1f}"/>')
        lines += _curves(panel, drawn, families, _better(result, panel.endpoint))
    if low := [one for one in result.settings if one not in drawn]:
        finals = [(one.name, one.final.accuracy.value, one.final.leaks[PRIMARY].value) for one in low]
        words = "; ".join(f"{name} {accuracy:.2f}, AUC {leak:.2f}" for name, accuracy, leak in finals)
        lines.append(f'<text x="{LEFT - 40}" y="{HEIGHT - 6}">Lower accuracy: {escape(words)}</text>')
    return "\n".join([*lines, "</svg>"])


def alt_text(result: FrontierResult) -> str:
    """Describe the figure: its finding, and the numbers of each setting."""
    return f"{result.title}. " + "; ".join(
        f"{one.name}: accuracy {one.final.accuracy.value:.3f}, AUC {one.final.leaks[PRIMARY].value:.3f}"
        for one in result.settings
    )


def _better(result: FrontierResult, endpoint: str) -> set[str]:
    """Name the settings that leak less than ordinary regularisation of their accuracy.

    One that is more accurate than all of it was compared with none; it must leak less than the most accurate.
    """
    found = [one for one in result.comparisons if one.endpoint == endpoint and not one.against]
    names = {one.setting for one in found if one.verdict == "leaks less"}
    ordinary = [one.final for one in result.settings if one.ordinary]
    if found and ordinary:
        best = max(ordinary, key=lambda stage: stage.accuracy.value)
        others = {one.name: one.final for one in result.settings if not one.ordinary}
        for name in others.keys() - {one.setting for one in found}:
            above = others[name].accuracy.value > best.accuracy.value
            if above and others[name].leaks[endpoint].high < best.leaks[endpoint].low:
                names.add(name)
    return names


def _panels(finals: Sequence[Stage]) -> list[Panel]:
    shown = [endpoint for endpoint in ENDPOINTS if all(endpoint in stage.leaks for stage in finals)][:2]
    width = (WIDTH - LEFT - RIGHT - GAP * (len(shown) - 1)) / len(shown)
    y = _padded([stage.accuracy for stage in finals])
    return [
        Panel(endpoint, LEFT + place * (width + GAP), width, _padded([stage.leaks[endpoint] for stage in finals]), y)
        for place, endpoint in enumerate(shown)
    ]


def _padded(values: Sequence[Measured]) -> tuple[float, float]:
    low, high = min(one.low for one in values), max(one.high for one in values)
    pad = max(0.01, 0.06 * (high - low))
    return max(0.0, low - pad), min(1.0, high + pad)


def _families(result: FrontierResult) -> dict[str, tuple[str, str, str]]:
    """Give each defence a colour by its family, a mark and a dash; no defence is a black square."""
    found = {result.settings[0].defence: ("var(--i,#222)", "square", "")}
    counts = [0] * len(HUES)
    for setting in result.settings:
        name = setting.defence
        if name not in found:
            kinds = (setting.ordinary, name.startswith(NOISE), name.startswith(LOSSES), setting.formal)
            family = next((place for place, holds in enumerate(kinds) if holds), len(kinds))
            number, counts[family] = counts[family], counts[family] + 1
            found[name] = (HUES[family], MARKS[number % len(MARKS)], DASHES[number % len(DASHES)])
    return found


def _axes(panel: Panel, first: bool) -> Iterator[str]:
    left, right, floor = panel.left, panel.left + panel.width, HEIGHT - BOTTOM
    for tick in _ticks(*panel.y):
        y = panel.at(panel.x[0], tick)[1]
        yield f'<line class="grid" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        if first:
            yield f'<text x="{left - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    for tick in _ticks(*panel.x):
        x = panel.at(tick, panel.y[0])[0]
        yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 4}"/>'
        yield f'<text x="{x:.1f}" y="{floor + 18}" text-anchor="middle">{tick:g}</text>'
    yield f'<path class="axis" d="M{left:.1f},{TOP}V{floor}H{right:.1f}"/>'
    middle = (left + right) / 2
    yield f'<text x="{middle:.1f}" y="{HEIGHT - 26}" text-anchor="middle">{ENDPOINTS[panel.endpoint]}</text>'
    if first:
        yield f'<text x="{left - 44:.1f}" y="{TOP - 8}">test accuracy (better: up and left)</text>'


def _ticks(low: float, high: float) -> list[float]:
    """Choose about five round numbers.

    >>> _ticks(0.48, 0.72)
    [0.5, 0.55, 0.6, 0.65, 0.7]
    """
    step = next((size for size in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2) if (high - low) / size <= 6), 0.5)
    first = int(-(-low // step))
    return [round(place * step, 4) for place in range(first, int(high / step + 1e-9) + 1)]


def _dominated(panel: Panel, result: FrontierResult) -> Iterator[str]:
    """Shade what ordinary regularisation beats, its checkpoints included."""
    points = sorted(
        (stage.leaks[panel.endpoint].value, stage.accuracy.value)
        for setting in result.settings
        if setting.ordinary
        for stage in setting.stages
        if stage.accuracy.value >= panel.y[0]
    )
    best, corners = panel.y[0], []
    for leak, accuracy in points:
        if accuracy > best:
            corners += [(max(leak, panel.x[0]), best), (max(leak, panel.x[0]), accuracy)]
            best = accuracy
    if not corners:
        return
    outline = [*corners, (panel.x[1], best), (panel.x[1], panel.y[0])]
    path = " ".join("{:.1f},{:.1f}".format(*panel.at(min(x, panel.x[1]), y)) for x, y in outline)
    yield f'<polygon class="beaten" points="{path}"/>'


def _curves(
    panel: Panel, drawn: Sequence[SettingResult], families: Mapping[str, tuple[str, str, str]], better: Set[str]
) -> Iterator[str]:
    ends: list[End] = []
    start = drawn[0]
    for defence in dict.fromkeys(one.defence for one in drawn):
        hue, mark, dash = families[defence]
        settings = [one for one in drawn if one.defence == defence]
        strong = defence == start.defence or any(one.name in better for one in settings)
        if defence == start.defence:  # its checkpoints: early stopping
            path = [stage for stage in start.stages if stage.accuracy.value >= panel.y[0]]
        else:
            first = [] if settings[0].formal else [start.final]  # a formal method trains something else
            path = [*first, *(one.final for one in settings)]
        xy = [panel.at(stage.leaks[panel.endpoint].value, stage.accuracy.value) for stage in path]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in xy)
        yield (
            f'<g class="d" style="color:{hue}"><polyline points="{line}" fill="none" stroke="currentColor" '
            f'stroke-opacity="{0.6 if strong else 0.25}" stroke-dasharray="{dash}"/>'
        )
        for setting in settings:
            yield from _point(panel, setting, mark, strong=setting is start or setting.name in better)
        yield "</g>"
        ends.append(End(xy[-1][1], _label(settings), hue, mark, strong))
    yield from _labels(panel, ends)


def _label(settings: Sequence[SettingResult]) -> str:
    """Name a line: its strongest setting, and the epsilon where one is proven."""
    last = settings[-1]
    shown = last.epsilon is None or "epsilon" in last.name
    return last.name if shown else f"{last.name}, ε {last.epsilon:.3g}" + (f" per {last.per}" if last.per else "")


def _point(panel: Panel, setting: SettingResult, mark: str, strong: bool) -> Iterator[str]:
    leak, accuracy = setting.final.leaks[panel.endpoint], setting.final.accuracy
    x, y = panel.at(leak.value, accuracy.value)
    (low, _), (high, _) = panel.at(leak.low, accuracy.value), panel.at(leak.high, accuracy.value)
    (_, bottom), (_, top) = panel.at(leak.value, accuracy.low), panel.at(leak.value, accuracy.high)
    words = f"{setting.name}: accuracy {accuracy.words()}, {panel.endpoint} {leak.words()}"
    cross = f"M{low:.1f},{y:.1f}H{high:.1f}M{x:.1f},{bottom:.1f}V{top:.1f}"
    yield (
        f'<g opacity="{1 if strong else PALE}">'
        f'<path d="{cross}" stroke="currentColor" stroke-opacity=".6" fill="none"/>'
        f'<path d="{_shape(mark, x, y)}" fill="currentColor"><title>{escape(words)}</title></path></g>'
    )
    if strong and setting.strength is not None:
        style = "fill:currentColor;font-weight:600"
        yield f'<text x="{x - 7:.1f}" y="{y - 5:.1f}" text-anchor="end" style="{style}">{setting.strength:g}</text>'


def _shape(mark: str, x: float, y: float) -> str:
    return {
        "circle": f"M{x - 4:.1f},{y:.1f}a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
        "square": f"M{x - 4:.1f},{y - 4:.1f}h8v8h-8z",
        "diamond": f"M{x:.1f},{y - 5:.1f}l5,5l-5,5l-5,-5z",
        "triangle": f"M{x:.1f},{y - 5:.1f}l5,9h-10z",
        "cross": f"M{x - 4:.1f},{y - 1.5:.1f}h8v3h-8z",
    }[mark]


def _labels(panel: Panel, ends: Sequence[End]) -> Iterator[str]:
    """Write labels right of the panel, in the order of the lines' ends, each with its mark."""
    ordered = sorted(ends, key=lambda end: end.y)
    gap = min(LETTER + 4.0, (HEIGHT - TOP - BOTTOM) / max(1, len(ordered)))
    place = TOP - gap
    places = [place := max(end.y, place + gap) for end in ordered]
    ceiling = float(HEIGHT - BOTTOM)
    for number in reversed(range(len(places))):
        places[number] = min(places[number], ceiling)
        ceiling = places[number] - gap
    edge = panel.left + panel.width + 14
    for end, at in zip(ordered, places, strict=True):
        weight = 600 if end.strong else 400
        yield (
            f'<g class="d" style="color:{end.hue}"><path d="{_shape(end.mark, edge, at)}" fill="currentColor" '
            f'opacity="{1 if end.strong else PALE}"/><text x="{edge + 9:.1f}" y="{at + 4:.1f}" '
            f'style="fill:currentColor;font-size:11px;font-weight:{weight}">{escape(end.text)}</text></g>'
        )
