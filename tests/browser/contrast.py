"""How well a text can be told from its background, as WCAG 2 defines it."""

from __future__ import annotations

import re

LEGIBLE = 4.5
"""The least contrast of small text."""


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
