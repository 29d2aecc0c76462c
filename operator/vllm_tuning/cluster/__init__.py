"""The only room that talks to the API server: gathers ``Observed``, performs a ``Decision``."""
