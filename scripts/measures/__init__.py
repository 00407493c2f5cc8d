"""Measures of how well the program reads: its prose (`scripts/prose`) and its shape (`scripts/measure_house`)."""
