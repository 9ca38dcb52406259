"""The report in a real browser: it draws, its buttons work, it loads nothing, and it fits a phone."""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from resperturb.report.collect import ReportedModel
from resperturb.report.page import render

ARTEFACTS = Path(__file__).parents[2] / "test-artifacts"
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NASTY = "<script>alert(1)</script>"
DRAWN = """() => [...document.querySelectorAll(".chart")].every(
    chart => chart.querySelectorAll(".main-svg .trace, .main-svg .point, .main-svg path.js-line").length > 0)"""


@pytest.fixture(scope="module")
def page(runs: list[ReportedModel], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The report of three runs with private records, open in Chromium; its errors are kept."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        if os.environ.get("CI"):
            pytest.fail("there is no chromium, and continuous integration must not go without this test.")
        pytest.skip("no chromium is installed; `apt install chromium` to test the report in it.")
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(runs, f"A report {NASTY}", show_records=True))
    path.with_name("many.html").write_text(render(runs * 2, "Six models"))
    ARTEFACTS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(180_000)
        page.wrong, page.asked = [], []  # type: ignore[attr-defined]
        page.on("console", lambda message: page.wrong.append(message.text))  # type: ignore[attr-defined]
        page.on("pageerror", lambda error: page.wrong.append(str(error)))  # type: ignore[attr-defined]
        page.on("dialog", lambda dialog: page.wrong.append(dialog.message))  # type: ignore[attr-defined]
        page.on("request", lambda request: page.asked.append(request.url))  # type: ignore[attr-defined]
        page.goto(path.as_uri())
        page.wait_for_function(DRAWN)
        yield page
        browser.close()


@pytest.fixture(autouse=True)
def _nothing_went_wrong(page: Page) -> Iterator[None]:
    yield
    assert page.wrong == []  # type: ignore[attr-defined]
    outside = [url for url in page.asked if not url.startswith(("file:", "data:"))]  # type: ignore[attr-defined]
    assert outside == []


def test_every_chart_draws(page: Page) -> None:
    assert page.locator(".chart").count() == 2
    assert page.evaluate(DRAWN)


def test_a_name_with_markup_is_shown_as_text(page: Page) -> None:
    assert NASTY in page.title()
    assert NASTY in page.locator("h1").inner_text()
    assert NASTY in page.locator(".facts").inner_text()  # the name of a class
    labels = page.locator("#chart-roc text").all_text_contents()
    assert f"noisy {NASTY}" in labels


def test_the_axes_of_the_roc_curve_can_be_made_logarithmic(page: Page) -> None:
    linear, log = page.locator("#title-roc ~ .toggle button").all()
    assert axis_type(page) == "linear"
    log.focus()
    page.keyboard.press("Enter")
    assert axis_type(page) == "log"
    assert (linear.get_attribute("aria-pressed"), log.get_attribute("aria-pressed")) == ("false", "true")
    page.locator("#chart-roc").screenshot(path=ARTEFACTS / "roc-logarithmic.png")
    linear.click()
    assert axis_type(page) == "linear"


def test_light_and_dark(page: Page) -> None:
    ink = "() => getComputedStyle(document.querySelector('#chart-training text')).fill"
    light = page.evaluate(ink)
    page.locator("#theme").click()
    dark = page.evaluate(ink)
    assert dark != light
    for theme in ("dark", "light"):
        assert page.evaluate(CONTRAST) == [], theme
        page.locator("#theme").click()
    assert page.evaluate(ink) == dark
    page.screenshot(path=ARTEFACTS / "report-1280-dark.png", full_page=True)
    page.locator("#theme").click()


# Texts of charts that end beyond their chart, where they cannot be read.
BEYOND = """() => [...document.querySelectorAll(".chart")].flatMap(chart => {
  const { left, right } = chart.getBoundingClientRect();
  return [...chart.querySelectorAll(".main-svg text")].filter(text => text.textContent.trim()).filter(text => {
    const box = text.getBoundingClientRect();
    return box.width && (box.left < left - 1 || box.right > right + 1);
  }).map(text => chart.id + ": " + text.textContent);
})"""


def test_it_fits_a_screen_and_a_phone(page: Page) -> None:
    page.screenshot(path=ARTEFACTS / "report-1280.png", full_page=True)
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("() => document.querySelector('#chart-roc .main-svg').clientWidth < 390")
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390
    assert page.evaluate(BEYOND) == []
    for cell in page.locator(".decided td, .signature span").all():
        box = cell.bounding_box()
        assert box is not None
        assert 0 <= box["x"] < box["x"] + box["width"] <= 390
    page.screenshot(path=ARTEFACTS / "report-390.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 900})


def test_it_prints_light_and_unfolded(page: Page) -> None:
    page.locator("#theme").click()
    folded = page.locator("details:not([open])").count()
    assert folded > 0
    page.evaluate(
        "() => { window.seen = null; addEventListener('beforeprint', () => { window.seen = "
        "[document.documentElement.dataset.theme, document.querySelectorAll('details:not([open])').length]; }); }"
    )
    page.pdf(path=ARTEFACTS / "report.pdf")
    assert page.evaluate("() => window.seen") == ["light", 0]
    assert page.locator("details:not([open])").count() == folded
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    page.locator("#theme").click()


# What prints on the first sheet ends here, in pixels of 1/96 inch.
FIRST = "() => document.querySelector('.first').getBoundingClientRect().bottom + scrollY"
# Letter paper, the shorter, of 11 inches, and A4, the narrower, of 210 mm; margins of 0.4 inches.
HEIGHT, WIDTH = int((11 - 0.8) * 96), int((210 / 25.4 - 0.8) * 96)


def test_the_decision_is_one_printed_page(page: Page) -> None:
    address = page.url
    for name in (address, address.replace("report.html", "many.html")):
        page.goto(name)
        page.emulate_media(media="print")
        page.set_viewport_size({"width": WIDTH, "height": 900})
        assert page.evaluate(FIRST) <= HEIGHT, name
        assert page.evaluate("() => getComputedStyle(document.querySelector('.first')).breakAfter") == "page"
        page.emulate_media(media="screen")
        page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(address)
    page.wait_for_function(DRAWN)


# Words of a table that are broken over two lines, other than names too long for any column.
BROKEN = """() => {
  const broken = [];
  for (const cell of document.querySelectorAll("th, td")) {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      for (const word of node.textContent.matchAll(/[^\\s\\-/()]+/g)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (word[0].length < 20 && new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1) {
          broken.push(word[0]);
        }
      }
    }
  }
  return broken;
}"""


def test_no_word_is_split_and_the_auc_is_seen_on_a_phone(page: Page) -> None:
    page.evaluate("() => document.querySelectorAll('details').forEach(item => { item.open = true; })")
    assert page.evaluate(BROKEN) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(BROKEN) == []
    area = page.locator("#leak ~ .scroll").first.locator("tbody tr:first-child td").first.bounding_box()
    assert area is not None
    assert area["x"] + area["width"] <= 390
    page.set_viewport_size({"width": 1280, "height": 900})
    page.reload()
    page.wait_for_function(DRAWN)


def test_no_two_ticks_of_an_axis_have_the_same_label(page: Page) -> None:
    ticks = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".chart")].flatMap(chart =>
            ["xtick", "ytick"].map(kind => [chart.id + " " + kind,
                [...chart.querySelectorAll("." + kind + " text")].map(label => label.textContent)])))"""
    )
    assert any(ticks.values())
    assert {axis: labels for axis, labels in ticks.items() if len(set(labels)) < len(labels)} == {}


def test_axe_finds_nothing(page: Page) -> None:
    if importlib.util.find_spec("axe_playwright_python") is None and not os.environ.get("CI"):
        pytest.skip("axe is not installed: pip install axe-playwright-python")
    from axe_playwright_python.sync_playwright import Axe

    page.evaluate("() => document.querySelectorAll('details').forEach(item => { item.open = true; })")
    for theme in ("light", "dark"):
        page.evaluate(f"() => {{ document.documentElement.dataset.theme = '{theme}'; }}")
        found = Axe().run(page).response["violations"]
        assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in found] == [], theme
    page.reload()
    page.wait_for_function(DRAWN)


def test_everything_can_be_reached_by_keyboard_and_has_a_name(page: Page) -> None:
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, a, [role=img], [role=region], img, summary")]
            .filter(item => !(item.getAttribute("aria-label") || item.getAttribute("alt") || item.textContent.trim()))
            .map(item => item.outerHTML)"""
    )
    assert unnamed == []
    assert (
        page.evaluate("() => document.querySelectorAll('[tabindex]:not([tabindex=\"0\"]):not(.chart *)').length") == 0
    )
    for scrolling in page.locator(".scroll").all():
        assert scrolling.get_attribute("tabindex") == "0"


def axis_type(page: Page) -> str:
    return str(page.evaluate("() => document.getElementById('chart-roc').layout.xaxis.type"))


# The contrast of every text with what is behind it, by WCAG's formula; what is below AA is returned.
CONTRAST = """() => {
  const parse = color => (color.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = item => {
    for (; item; item = item.parentElement) {
      const color = parse(getComputedStyle(item).backgroundColor);
      if (color.length === 3 || color[3] > 0.5) return color;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const item of document.querySelectorAll("body *:not(script):not(style)")) {
    if (![...item.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())) continue;
    const style = getComputedStyle(item);
    const color = parse(item.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(color), light(behind(item))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push([item.textContent.slice(0, 40), style.color]);
  }
  return poor;
}"""
