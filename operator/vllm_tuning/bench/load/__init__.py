"""The load driver: arrivals, lengths, prompts, and the HTTP streams that carry them.

Why own: docs/adr/0004-own-load-driver.md.
"""
