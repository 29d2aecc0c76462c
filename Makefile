# `make help` lists the targets. Nothing but Python >= 3.11 is needed to start; `test` and `demo` bring up a cluster of their
# own (Linux, root, Go >= 1.26; see hack/cluster) whose tools are made once into ~/.cache/vllm-tuning-operator.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast check check-style check-types check-imports check-generated generate bench bench-search bench-driver bench-verdicts fuzz lock tour cluster-build cluster-up cluster-down clean
python := .venv/bin/python

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 20

setup: ## make .venv from the locked requirements
	@hack/setup

demo: setup ## the main job on a real cluster with a real vLLM (KUBECONFIG=... uses that cluster)
	@hack/demo/run

test: setup ## every test: about 25 minutes (the first time 45: the cluster's tools are compiled)
	@hack/test

test-fast: setup ## the tests that need no cluster: minutes
	$(python) -m pytest -q -m "not control_plane and not simulated and not real_engine and not gpu"

check: check-style check-types check-imports check-generated ## style, types, import rules, generated files

check-style: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

check-types: setup
	.venv/bin/mypy

check-imports: setup
	.venv/bin/lint-imports

check-generated: setup
	$(python) hack/generate.py --check

generate: setup ## write the files that are generated from the models
	$(python) hack/generate.py

bench: bench-search bench-driver bench-verdicts ## the benchmarks of the project itself

bench-search: setup ## the search against its peers' rules, on the simulated engine (FULL=1: every case)
	.venv/bin/uv pip install -q --python $(python) --group peers
	$(python) benchmarks/search/run.py $(if $(FULL),--full)

bench-driver: setup ## the load driver against `vllm bench serve` and guidellm, interleaved (15 minutes; SHORT=1: 3)
	hack/engine/engine install
	$(python) benchmarks/driver --vllm "$$(hack/engine/engine venv)/bin/vllm" --guidellm "$$(benchmarks/driver/guidellm)" $(if $(SHORT),--short)

bench-verdicts: setup ## how often a PASS is wrong, ours against a percentile and an i.i.d. test (FULL=1: ten times the runs)
	$(python) benchmarks/verdicts/run.py $(if $(FULL),--full)

fuzz: setup ## fuzz the editor of launch args (CASES=20000); with the engine installed, its own parser judges
	$(python) -m tests.fuzz.flags --cases $(or $(CASES),20000) \
	  $$(parser=$$(hack/engine/engine venv)/lib/python3.11/site-packages; [ -d "$$parser/vllm" ] && echo --parser "$$parser")

tour: setup ## write docs/tour.md: a user's hour on a control plane (2 minutes)
	$(python) -m hack.tour

lock: setup ## write requirements/*.txt again (LOCK=--upgrade: newest versions)
	hack/lock $(LOCK)

cluster-build: ## make the cluster's tools and base images (first time: 10 to 15 minutes)
	hack/cluster/cluster build

cluster-up: ## a cluster to play with: hack/cluster/cluster exec kubectl get pods -A
	hack/cluster/cluster up

cluster-down: ## take it down
	hack/cluster/cluster down

clean: ## remove what was built in the tree (the cache stays: rm -rf ~/.cache/vllm-tuning-operator)
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
