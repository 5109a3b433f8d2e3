"""The report's page, looked at in a real browser: where nodes stand, what colours say, what opens, what cannot run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

pytestmark = pytest.mark.browser

Show = Callable[..., Chrome]
Racks = dict[str, dict[str, Any]]
NAMES = ("accepted", "failed", "unreachable", "full", "hostile")


def box(element: WebElement) -> dict[str, float]:
    """The element's rectangle on the page, in CSS pixels, fractions included."""
    return element.parent.execute_script(
        "const r = arguments[0].getBoundingClientRect();"
        "return {top: r.top + scrollY, bottom: r.bottom + scrollY, left: r.left, right: r.right, width: r.width, height: r.height}",
        element,
    )


def css(element: WebElement, name: str) -> str:
    return element.parent.execute_script("return getComputedStyle(arguments[0]).getPropertyValue(arguments[1])", element, name)


def node(browser: Chrome, name: str) -> WebElement:
    found = [box for box in browser.find_elements(By.CSS_SELECTOR, ".node") if box.get_attribute("data-node") == name]
    assert len(found) == 1, f"{name} is drawn {len(found)} times"
    return found[0]


def cells(element: WebElement) -> list[WebElement]:
    return element.find_elements(By.CSS_SELECTOR, "button.gpu")


def open_dialogs(browser: Chrome) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, "dialog[open]")


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(r, g, b)` (https://www.w3.org/TR/WCAG22/#dfn-relative-luminance)."""
    channels = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].replace(",", " ").split()[:3]]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("name", ["accepted", "failed", "unreachable", "full"])
def test_nodes_stand_at_their_units(show: Show, racks: Racks, name: str, width: int) -> None:
    browser = show(name, width=width)
    rack = browser.find_element(By.CSS_SELECTOR, ".rack")
    numbers = {int(unit.text): box(unit) for unit in rack.find_elements(By.CSS_SELECTOR, ".unit")}
    assert sorted(numbers) == list(range(1, racks[name]["rack"]["height"] + 1))
    assert numbers[1]["top"] > numbers[2]["top"], "unit 1 is the lowest"
    placed = 0
    for entry in racks[name]["nodes"]:
        drawn = node(browser, entry["name"])
        if not drawn.find_elements(By.XPATH, "ancestor::div[contains(@class, 'rack')]"):
            continue
        placed += 1
        here = box(drawn)
        lowest, highest = numbers[entry["rack_unit"]], numbers[entry["rack_unit"] + entry["units"] - 1]
        assert abs(here["bottom"] - lowest["bottom"]) <= 2, entry["name"]
        assert abs(here["top"] - highest["top"]) <= 2, entry["name"]
        assert abs(here["height"] - entry["units"] * lowest["height"]) <= 3, entry["name"]
        assert here["left"] >= lowest["right"] - 1, "the node covers the units' numbers"
    assert placed >= 3


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("name", NAMES)
def test_gpus_lie_inside_their_node_and_apart(show: Show, racks: Racks, name: str, width: int) -> None:
    browser = show(name, width=width)
    for entry in racks[name]["nodes"]:
        drawn = next(
            item
            for item in browser.find_elements(By.CSS_SELECTOR, ".node")
            if item.find_element(By.CSS_SELECTOR, "a")
            .get_attribute("href")
            .endswith(f"#node-{racks[name]['nodes'].index(entry)}")
        )
        frame = box(drawn)
        places = [box(cell) for cell in cells(drawn)]
        assert len(places) == len(entry["gpus"])
        for place in places:
            assert frame["left"] <= place["left"], entry["name"]
            assert place["right"] <= frame["right"] + 0.5, entry["name"]
            assert frame["top"] <= place["top"] + 0.5, entry["name"]
            assert place["bottom"] <= frame["bottom"] + 0.5, entry["name"]
            assert min(place["width"], place["height"]) >= 24, "a finger must hit it (WCAG 2.2, target size)"
        for number, one in enumerate(places):
            for other in places[number + 1 :]:
                apart = (
                    one["right"] <= other["left"] + 0.5
                    or other["right"] <= one["left"] + 0.5
                    or one["bottom"] <= other["top"] + 0.5
                    or other["bottom"] <= one["top"] + 0.5
                )
                assert apart, f"two GPUs of {entry['name']} overlap"


def test_nodes_that_cannot_be_placed_are_shown_with_the_reason(show: Show) -> None:
    browser = show("full")
    beside = browser.find_element(By.CSS_SELECTOR, ".unplaced")
    names = [item.get_attribute("data-node") for item in beside.find_elements(By.CSS_SELECTOR, ".node")]
    assert names == ["node-without-unit", "node-on-taken-unit", "node-outside"]
    for reason in ("gives it no rack_unit", "dgx-00 is on unit 5 already", "units 42 to 44 are not in a rack of 42"):
        assert reason in beside.text


@pytest.mark.parametrize("dark", [False, True])
def test_status_shows_by_colour_and_by_mark(show: Show, racks: Racks, dark: bool) -> None:
    browser = show("failed", dark=dark)
    looks: dict[str, set[tuple[str, str, str]]] = {}
    for entry in racks["failed"]["nodes"]:
        for cell, gpu in zip(cells(node(browser, entry["name"])), entry["gpus"], strict=True):
            assert cell.get_attribute("data-status") == gpu["status"]
            mark = cell.find_element(By.CSS_SELECTOR, "span").text
            looks.setdefault(gpu["status"], set()).add((css(cell, "background-color"), css(cell, "border-top-style"), mark))
            background = css(cell, "background-color")
            if background != "rgba(0, 0, 0, 0)":
                assert contrast(css(cell, "color"), background) >= 4.5
    assert set(looks) == {"pass", "warn", "fail", "missing"}
    assert all(len(variants) == 1 for variants in looks.values()), looks
    flat = {status: next(iter(variants)) for status, variants in looks.items()}
    assert len({look[0] for look in flat.values()}) == 4, "four statuses, four colours"
    assert len({look[1:] for look in flat.values()}) == 4, "and told apart without colour"
    red, green = (next(iter(looks[status]))[0] for status in ("fail", "pass"))
    channels = [[int(part) for part in colour[4:-1].split(",")] for colour in (red, green)]
    assert channels[0][0] > channels[0][1], red
    assert channels[1][1] > channels[1][0], green


def test_dark_and_light_follow_the_reader(show: Show) -> None:
    light = luminance(css(show("accepted").find_element(By.TAG_NAME, "body"), "background-color"))
    dark = luminance(css(show("accepted", dark=True).find_element(By.TAG_NAME, "body"), "background-color"))
    assert light > 0.8
    assert dark < 0.05


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(
    "selector",
    [
        ".badge",
        ".sentence",
        ".eyebrow",
        ".unit",
        ".legend li",
        ".versions dt",
        ".check .short",
        "summary",
        "footer",
        ".filter span",
    ],
)
def test_text_can_be_read(show: Show, selector: str, dark: bool) -> None:
    browser = show("failed", dark=dark)
    ratios = browser.execute_script(
        """
        const solid = (element) => { for (let e = element; e; e = e.parentElement) {
            const c = getComputedStyle(e).backgroundColor; if (!c.startsWith("rgba")) return c; } return "rgb(255, 255, 255)"; };
        return [...document.querySelectorAll(arguments[0])].filter((e) => e.checkVisibility())
            .map((e) => [getComputedStyle(e).color, solid(e)])
        """,
        selector,
    )
    assert ratios
    for text, background in ratios:
        assert contrast(text, background) >= 4.5, (text, background)


def test_a_gpu_opens_its_checks(show: Show) -> None:
    browser = show("failed")
    cell = cells(node(browser, "node-02"))[2]
    assert not open_dialogs(browser)
    cell.click()
    (dialog,) = open_dialogs(browser)
    assert "GPU 2" in dialog.text
    assert "0000:09:00.0" in dialog.text
    own = dialog.find_elements(By.CSS_SELECTOR, "h3 + ul")[0]
    listed = own.find_elements(By.CSS_SELECTOR, ".check")
    assert [item.find_element(By.CSS_SELECTOR, ".id").text for item in listed] == ["gpu.ecc.uncorrectable", "gpu.state"]
    assert "line of gpu.ecc.uncorrectable" in listed[0].text, "a failing check is open, with its evidence"
    assert "0000:07:00.0" not in dialog.text, "a check of another GPU"
    dialog.find_element(By.CSS_SELECTOR, ".close").click()
    assert not open_dialogs(browser)
    assert browser.switch_to.active_element == cell, "the focus returns to where it was"


def test_every_gpu_opens_a_dialog_of_its_own(show: Show) -> None:
    browser = show("failed")
    for cell in browser.find_elements(By.CSS_SELECTOR, "button.gpu"):
        browser.execute_script("arguments[0].click()", cell)
        (dialog,) = open_dialogs(browser)
        label = cell.get_attribute("aria-label")
        assert dialog.find_element(By.CSS_SELECTOR, "h2").text.split("\n")[0].startswith(label.split(",")[0].split(":")[0])
        assert dialog.find_elements(By.CSS_SELECTOR, ".check"), label
        browser.execute_script("arguments[0].close()", dialog)


def test_a_missing_gpu_says_so(show: Show) -> None:
    browser = show("failed")
    cell = cells(node(browser, "node-03"))[3]
    assert cell.get_attribute("aria-label") == "GPU 3, H100: missing"
    cell.click()
    (dialog,) = open_dialogs(browser)
    assert "expected and was not found" in dialog.text
    assert "gpu.count" in dialog.text
    assert "Reseat the missing GPU" in dialog.text


def test_the_keyboard_is_enough(show: Show) -> None:
    browser = show("failed")
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    reached: list[str] = []
    for _ in range(60):
        active = browser.switch_to.active_element
        reached.append(active.get_attribute("aria-label") or active.text or active.get_attribute("id"))
        if active.get_attribute("id") == "show-all":
            break
        assert css(active, "outline-style") != "none" or "skip-link" in (active.get_attribute("class") or ""), (
            "the focus is visible"
        )
        active.send_keys(Keys.TAB)
    assert len([label for label in reached if label.startswith("GPU ")]) == 12, reached
    cell = cells(node(browser, "node-02"))[1]
    cell.send_keys(Keys.ARROW_RIGHT)
    assert browser.switch_to.active_element == cells(node(browser, "node-02"))[2]
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    (dialog,) = open_dialogs(browser)
    assert browser.execute_script("return arguments[0].contains(document.activeElement)", dialog)
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not open_dialogs(browser)
    assert browser.switch_to.active_element == cells(node(browser, "node-02"))[2]
    choice = browser.find_element(By.ID, "show-all")
    choice.send_keys(Keys.ARROW_RIGHT)
    assert browser.find_element(By.ID, "show-attention").is_selected()


@pytest.mark.parametrize("name", NAMES)
def test_names_and_roles_for_screen_readers(show: Show, name: str) -> None:
    browser = show(name)
    for button in browser.find_elements(By.TAG_NAME, "button"):
        assert button.accessible_name.strip() or not button.is_displayed()
    for dialog in browser.find_elements(By.TAG_NAME, "dialog"):
        title = browser.find_elements(By.ID, dialog.get_attribute("aria-labelledby"))
        assert len(title) == 1
    ids = browser.execute_script("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    for cell in browser.find_elements(By.CSS_SELECTOR, "button.gpu"):
        assert cell.get_attribute("aria-haspopup") == "dialog"
        assert browser.find_elements(By.ID, cell.get_attribute("data-opens"))
    assert len(browser.find_elements(By.TAG_NAME, "h1")) == 1
    assert browser.find_element(By.TAG_NAME, "html").get_attribute("lang") == "en"


def test_the_nodes_sentence_is_shown(show: Show, racks: Racks) -> None:
    browser = show("failed")
    for entry in racks["failed"]["nodes"]:
        card = browser.find_element(By.CSS_SELECTOR, f".card[data-node='{entry['name']}']")
        sentences = [item.text for item in card.find_elements(By.CSS_SELECTOR, ".sentence")]
        assert sentences == ([entry["sentence"]] if entry["sentence"] else [])
    assert "gpu.count: found 3, expected 4; reseat" in browser.find_element(By.CSS_SELECTOR, "main").text
    assert racks["failed"]["rack"]["sentence"] in browser.find_element(By.TAG_NAME, "header").text


def test_the_filter_leaves_only_failing_checks(show: Show) -> None:
    browser = show("failed")

    def visible() -> list[tuple[str, str]]:
        return [
            (item.get_attribute("class"), item.find_element(By.CSS_SELECTOR, ".id").text)
            for item in browser.find_elements(By.CSS_SELECTOR, ".card .check")
            if item.is_displayed()
        ]

    def cards() -> list[str]:
        return [
            card.get_attribute("data-node") for card in browser.find_elements(By.CSS_SELECTOR, ".card") if card.is_displayed()
        ]

    assert cards() == ["node-01", "node-02", "node-03"]
    browser.find_element(By.ID, "show-failing").click()
    assert visible() == [("check fail", "gpu.ecc.uncorrectable"), ("check fail", "gpu.count")]
    assert cards() == ["node-02", "node-03"]
    browser.find_element(By.ID, "show-attention").click()
    assert cards() == ["node-01", "node-02", "node-03"]
    assert [kind for kind, _ in visible()] == ["check warn", "check fail", "check fail"]
    browser.find_element(By.ID, "show-all").click()
    browser.execute_script("for (const d of document.querySelectorAll('.rest')) d.open = true")
    assert len(visible()) == 13 + 13 + 7


def test_the_filter_says_when_nothing_is_left(show: Show) -> None:
    browser = show("accepted")
    message = browser.find_element(By.CSS_SELECTOR, ".none")
    assert not message.is_displayed()
    browser.find_element(By.ID, "show-failing").click()
    assert message.is_displayed()


def test_a_nodes_name_leads_to_its_checks(show: Show) -> None:
    browser = show("full")
    node(browser, "dgx-03").find_element(By.CSS_SELECTOR, ".name").click()
    card = browser.find_element(By.CSS_SELECTOR, ".card:target")
    assert card.get_attribute("data-node") == "dgx-03"
    assert card.find_element(By.CSS_SELECTOR, ".rest").get_attribute("open")


def test_unreachable_and_left_out_nodes_are_never_green(show: Show) -> None:
    browser = show("unreachable")
    words = {
        card.get_attribute("data-node"): card.find_element(By.CSS_SELECTOR, ".top .badge").text
        for card in browser.find_elements(By.CSS_SELECTOR, ".card")
    }
    assert {name: text.replace("\n", " ").split(maxsplit=1)[-1].lstrip("✓✕?") for name, text in words.items()} == {
        "alive": "accepted",
        "dead": "unreachable",
        "left-out": "not looked at",
    }
    for name in ("dead", "left-out"):
        assert {cell.get_attribute("data-status") for cell in cells(node(browser, name))} == {"unknown"}
    assert "last phase begun was nvidia_driver" in browser.find_element(By.CSS_SELECTOR, ".card[data-node='dead']").text


def test_hostile_text_stays_text(show: Show) -> None:
    browser = show("hostile")
    assert browser.execute_script("return window.owned") is None
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 1
    assert browser.find_elements(By.TAG_NAME, "img") == []
    assert "<script>window.owned=1</script>" in browser.find_element(By.TAG_NAME, "h1").text
    cells(browser.find_element(By.CSS_SELECTOR, ".node"))[0].click()
    (dialog,) = open_dialogs(browser)
    assert "<img src=x" in dialog.text
    assert browser.execute_script("return window.owned") is None


def test_what_is_added_to_the_page_cannot_run(show: Show) -> None:
    """The content security policy stands behind the escaping: an injected handler is refused by the browser."""
    browser = show("accepted")
    browser.execute_script(
        "document.body.insertAdjacentHTML('beforeend', '<p id=bad onclick=\"window.owned=1\" style=\"color:red\">x</p>')"
    )
    browser.execute_script("document.getElementById('bad').click()")
    assert browser.execute_script("return window.owned") is None
    told = browser.get_log("browser")
    assert any("Content Security Policy" in line["message"] for line in told), told


@pytest.mark.parametrize("name", NAMES)
def test_the_page_needs_nothing_but_itself(show: Show, name: str) -> None:
    browser = show(name)
    assert browser.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)") in ([], ["data:,"])


@pytest.mark.parametrize("width", [320, 360, 412, 768, 1280])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_scrolls_sideways(show: Show, name: str, width: int) -> None:
    browser = show(name, width=width)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    button = browser.find_element(By.CSS_SELECTOR, "button.gpu")
    browser.execute_script("arguments[0].click()", button)
    (dialog,) = open_dialogs(browser)
    here = box(dialog)
    assert here["left"] >= 0
    assert here["right"] <= width
    assert browser.execute_script("return arguments[0].scrollWidth - arguments[0].clientWidth", dialog) <= 0


def test_without_script_every_check_is_still_there(show: Show, chrome: Chrome) -> None:
    chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser = show("failed")
        card = browser.find_element(By.CSS_SELECTOR, ".card[data-node='node-02']")
        card.find_element(By.CSS_SELECTOR, ".rest > summary").click()
        assert len([item for item in card.find_elements(By.CSS_SELECTOR, ".check") if item.is_displayed()]) == 13
    finally:
        chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
