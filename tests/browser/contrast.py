"""How well a text can be told from its background, as WCAG 2 defines it."""

from __future__ import annotations

import re

from processes import eventually

LEGIBLE = 4.5
"""The least contrast of small text."""

PAIRS = """board => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const paint = (colour, alpha = 1) => {
        canvas.globalAlpha = alpha;
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const seen = [];
    const walk = document.createTreeWalker(board, NodeFilter.SHOW_TEXT);
    for (let text; (text = walk.nextNode()); ) {
        const node = text.parentElement, up = [];
        if (!text.data.trim() || node.tagName === "OPTION" || !node.checkVisibility()) continue;
        for (let one = node; one; one = one.parentElement) up.unshift(getComputedStyle(one));
        const labels = node.matches(".mw-line") ? [getComputedStyle(node, "::before")] : [];
        let paper;
        for (const style of up) paper = paint(style.backgroundColor);
        const alpha = up.reduce((all, style) => all * style.opacity, 1);
        for (const style of [up.at(-1), ...labels]) {
            up.forEach((one) => paint(one.backgroundColor));
            const ink = node.namespaceURI.endsWith("svg") ? style.fill : style.color;
            seen.push([text.data, paint(ink, alpha), paper]);
        }
    }
    return seen;
}"""
"""Finds each visible text, with the colours of its ink and of what is behind it."""


def parts(colour):
    """Return red, green and blue, from 0 to 255, of a colour as CSS computes it."""
    found = [float(part) for part in re.findall(r"[\d.]+", colour)][:3]
    return found if colour.startswith("rgb") else [255 * part for part in found]


def luminance(colour):
    shares = [part / 255 for part in colour]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in shares]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    """Return the contrast of two colours, given as red, green and blue from 0 to 255."""
    lower, higher = sorted((luminance(one), luminance(other)))
    return (higher + 0.05) / (lower + 0.05)


def faint(shown):
    """Return the texts of an element that cannot be read well."""
    # While Jupyter renders an output again, there is none for a moment.
    pairs = eventually(lambda: shown.evaluate(PAIRS), "text")
    return {text: (ink, paper) for text, ink, paper in pairs if contrast(ink, paper) < LEGIBLE}
