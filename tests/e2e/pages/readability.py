"""Whether a page in a browser can be read: contrast of every text, and nothing cut off."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

from playwright.sync_api import Page, TimeoutError

from tests.loops import HANG_S

WIDTHS = (390, 1024, 1440)
_HEIGHT = 900
_FIND_FAULTS = """
() => {
  const LEAST_CONTRAST = 4.5;
  const parts = (color) => {
    const [red, green, blue, alpha = 1] = color.match(/[\\d.]+/g).map(Number);
    return { rgb: [red, green, blue], alpha };
  };
  const over = ({ rgb, alpha }, below) => rgb.map((one, at) => one * alpha + below[at] * (1 - alpha));
  const background = (element) => {
    if (!element) return parts(getComputedStyle(document.documentElement).backgroundColor).rgb;
    const own = parts(getComputedStyle(element).backgroundColor);
    return own.alpha === 1 ? own.rgb : over(own, background(element.parentElement));
  };
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((one) => one / 255).map((one) =>
      one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (element) => {
    const below = background(element);
    const style = getComputedStyle(element);
    const color = element instanceof SVGElement ? style.fill : style.color;
    const [dark, light] = [over(parts(color), below), below]
      .map(luminance).sort((one, other) => one - other);
    return (light + 0.05) / (dark + 0.05);
  };
  const faults = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const element = text.parentElement;
    if (!text.data.trim() || !element.checkVisibility()) continue;
    const ratio = contrast(element);
    if (ratio < LEAST_CONTRAST) faults.push(`contrast ${ratio.toFixed(2)}: ${text.data.trim().slice(0, 40)}`);
  }
  const room = document.documentElement.clientWidth;
  for (const element of document.body.querySelectorAll("*")) {
    if (!element.checkVisibility() || element.closest("select, svg, .unseen")) continue;
    const { left, right, width } = element.getBoundingClientRect();
    const name = `${element.tagName}.${element.className}`;
    if (width && (left < -1 || right > room + 1)) faults.push(`outside the window: ${name}`);
    const hides = getComputedStyle(element).overflowX !== "visible";
    if (hides && element.scrollWidth > element.clientWidth + 1) faults.push(`cut off: ${name}`);
  }
  return faults;
}
"""


def faults_of(page: Page) -> list[str]:
    """Return what cannot be read at each width, in light and dark; the theme must be the system's.

    Charts are drawn again some time after the theme or the width has changed: a fault counts if it stays.
    """
    faults = []
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": _HEIGHT})
            with suppress(TimeoutError):
                page.wait_for_function(f"() => !({_FIND_FAULTS})().length", timeout=HANG_S * 1000)
                continue
            found: list[Any] = page.evaluate(_FIND_FAULTS)
            faults += [f"{scheme}, {width} px: {fault}" for fault in found]
    return faults
