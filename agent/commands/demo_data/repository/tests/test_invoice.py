"""What an invoice must come to."""

import unittest

from billing.invoice import Invoice, Line
from billing.money import shown


class InvoiceTest(unittest.TestCase):
    def test_net_is_the_sum_of_all_lines(self):
        invoice = Invoice("2024-0101", (Line("Paper", 10, 449), Line("Stapler", 1, 1290)))
        self.assertEqual(invoice.net(), 5780)

    def test_tax_of_one_line(self):
        self.assertEqual(Invoice("2024-0102", (Line("Stapler", 1, 1290),)).taxes(), {19: 245})

    def test_each_rate_has_its_own_tax(self):
        invoice = Invoice("2024-0103", (Line("Stapler", 1, 1290), Line("Book", 2, 1500, rate=7)))
        self.assertEqual(invoice.taxes(), {19: 245, 7: 210})

    def test_tax_is_rounded_once_and_not_line_by_line(self):
        invoice = Invoice("2024-0117", (Line("Paper", 1, 1245), Line("Ink", 1, 2045), Line("Tape", 1, 445)))
        self.assertEqual(invoice.taxes(), {19: 710})
        self.assertEqual(shown(invoice.total()), "44.45")

    def test_an_invoice_without_lines_is_free(self):
        self.assertEqual(Invoice("2024-0104", ()).total(), 0)


if __name__ == "__main__":
    unittest.main()
