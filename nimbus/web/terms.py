"""Terms of leadership as a strip of bars, as SVG, the newest at the right. Pure.

Terms last from seconds to months, so heights are logarithmic. The table below the strip has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import log10

from markupsafe import Markup

from nimbus.api.models_terms import TermModel
from nimbus.domain.terms import EndCause
from nimbus.domain.wording import format_span

_STEP, _BAR, _BASE, _HEIGHT = 16, 12, 72, 104
_LONGEST, _LONGEST_GAP = 64, 26

CAUSES = {
    EndCause.RESIGNED: "handed over",
    EndCause.HANDED_OVER: "handed over by name",
    EndCause.STOPPED: "process stopped",
    EndCause.FAILED: "engine failed",
    EndCause.LOST: "lost the lock",
    EndCause.DIED: "died, or was cut off",
}

_SVG = Markup(
    '<svg id="term-strip" class="terms" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" '
    'aria-label="{count} terms, the newest at the right; the table below has the figures">'
    '<path class="tick" d="M0 {base}.5H{w}"/>{bars}</svg>'
)
_BARS = Markup(
    '<g class="{kind}"><title>{title}</title><rect class="term" x="{x}" y="{y}" width="{w}" height="{high}"/>'
    '<rect class="gap" x="{x}" y="{below}" width="{w}" height="{gap}"/></g>'
)


def term_strip(newest_first: Sequence[TermModel], now: datetime) -> Markup:
    """A bar for each term: its duration above the line, the gap before it below."""
    terms = newest_first[::-1]
    bars = Markup("").join(_bar(number, term, now) for number, term in enumerate(terms))
    width = max(len(terms) * _STEP, _STEP)
    return _SVG.format(w=width, h=_HEIGHT, base=_BASE, count=len(terms), bars=bars)


def cause(term: TermModel) -> str:
    """Why a term ended."""
    return "" if term.cause is None else CAUSES[term.cause]


def _bar(number: int, term: TermModel, now: datetime) -> Markup:
    lasted_s = max(((term.ended_at or now) - term.began_at).total_seconds(), 0.0)
    high = min(4 + round(10 * log10(1 + lasted_s)), _LONGEST)
    gap = min(round(8 * log10(1 + 10 * (term.gap_s or 0.0))), _LONGEST_GAP)
    return _BARS.format(
        kind="now" if term.cause is None else term.cause.value,
        title=_title(term),
        x=number * _STEP + (_STEP - _BAR) // 2,
        y=_BASE - high,
        w=_BAR,
        high=high,
        below=_BASE + 2,
        gap=gap,
    )


def _title(term: TermModel) -> str:
    ended = cause(term) or "has not ended"
    gap = "" if term.gap_s is None else f"; nobody led for {format_span(term.gap_s)} before"
    return f"epoch {term.epoch}, {term.scheduler}: {ended}{gap}"
