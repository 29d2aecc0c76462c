"""What is known about vLLM: launch args, flags by version, logs, failures, metrics, lint rules.

Pure: text and values in, values out. Imports nothing of the project.
"""
