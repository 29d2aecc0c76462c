# What the CPU build of vLLM needs around it; vLLM itself is mounted from the cache (see hack/engine/engine).
ARG BASE
FROM ${BASE}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends libnuma1 libgomp1 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
