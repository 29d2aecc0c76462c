"""Manifests as text: find what runs the engine, and change it without touching another byte."""
