"""The pure core: verdicts, priors, search (``ask``/``tell``), diagnosis, recommendation.

Start reading at ``model`` (the words), then ``search``. No I/O, no clock, no unseeded randomness.
"""
