"""Forges of our own on loopback, and the people's side of them."""
