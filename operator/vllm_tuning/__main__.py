"""``python -m vllm_tuning``."""

from vllm_tuning.cli.main import app

app()
