"""The process that starts, watches and stops the engine inside the engine's own image.

It becomes a zipapp (``vllm-tuning tools``) and runs under whatever Python that image has:
**standard library only, Python 3.9 or later**, and no import from the rest of the project. The
bench talks to it over HTTP on 127.0.0.1.
"""

PROTOCOL = 1
"""Raised when the HTTP interface changes in a way that an older bench cannot read."""
