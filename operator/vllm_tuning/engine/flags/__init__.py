"""The flags of vLLM's server, release by release, and how its parser reads a command line."""
