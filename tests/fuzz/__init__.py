"""Fuzzers with a larger budget than the test suite; run by hand or by `make fuzz`."""
