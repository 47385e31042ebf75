"""Cells of CSV files that a spreadsheet would run as a formula, written as text and read back."""
import re

# A cell that begins with one of these signs is a formula to a spreadsheet; the wide ones to some.
SIGNS = r'[=+\-@\t\r＝＋－＠]'
FORMULA = re.compile(f"'*{SIGNS}")
GUARDED = re.compile(f"'+{SIGNS}")


def guard(cell: str) -> str:
    """A cell that stays text in a spreadsheet: a quote before a sign that begins a formula."""
    return f"'{cell}" if FORMULA.match(cell) else cell


def unguard(cell: str) -> str:
    """The inverse of :func:`guard`."""
    return cell[1:] if GUARDED.match(cell) else cell
