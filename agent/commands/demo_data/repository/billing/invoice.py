"""An invoice: lines with their tax rates, the tax of each rate, and the total."""

from dataclasses import dataclass

from billing.money import percent, rounded, shown


@dataclass(frozen=True)
class Line:
    """One article.  `price` is net, in cents, for one piece; `rate` is the value added tax in percent."""

    text: str
    quantity: int
    price: int
    rate: int = 19

    @property
    def net(self) -> int:
        """The price of all pieces."""
        return self.quantity * self.price


@dataclass(frozen=True)
class Invoice:
    """What a customer is sent."""

    number: str
    lines: tuple[Line, ...]

    def net(self) -> int:
        """All lines without tax."""
        return sum(line.net for line in self.lines)

    def taxes(self) -> dict[int, int]:
        """The tax of each rate, in cents."""
        taxes: dict[int, int] = {}
        for line in self.lines:
            tax = rounded(percent(line.net, line.rate))
            taxes[line.rate] = taxes.get(line.rate, 0) + tax
        return taxes

    def total(self) -> int:
        """What is to be paid."""
        return self.net() + sum(self.taxes().values())

    def __str__(self) -> str:
        rows = [f"{line.quantity:>4} x {line.text:<28}{shown(line.net):>12}" for line in self.lines]
        rows += [f"     + {rate} % tax{'':<21}{shown(tax):>12}" for rate, tax in sorted(self.taxes().items())]
        return "\n".join([f"Invoice {self.number}", *rows, f"{'Total':<35}{shown(self.total()):>12}"])
