"""The ``vllm-tuning`` command.

One module per group of commands; heavy imports stay inside the commands.
"""
