"""Forge servers of our own on loopback, and the people who use them."""
