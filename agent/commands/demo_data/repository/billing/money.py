"""Amounts of money: whole cents, exact until they are rounded."""

from decimal import ROUND_HALF_UP, Decimal


def percent(cents: int, rate: int) -> Decimal:
    """`rate` percent of an amount, not rounded."""
    return Decimal(cents) * rate / 100


def rounded(amount: Decimal) -> int:
    """Whole cents; half a cent goes up, as the tax office wants it."""
    return int(amount.quantize(Decimal(1), ROUND_HALF_UP))


def shown(cents: int) -> str:
    """`1,234.50` of 123450."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02}"
