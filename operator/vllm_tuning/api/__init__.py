"""The Kubernetes API of the project: pydantic models, condition types and reasons, CRD generation.

Imports nothing of the project. ``crds/*.yaml`` is generated from here (``make generate``).
"""
