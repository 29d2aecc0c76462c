# Two images from one tree: `operator` (kopf, no NVML) and `bench` (load driver, search, launcher; no kopf). Neither holds vLLM.
#   docker build --target operator -t vllm-tuning-operator .
#   docker build --target bench -t vllm-tuning-bench .
# BASE is any image with python3 (>= 3.11) and its venv module.
ARG BASE=docker.io/library/python:3.12-slim

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /src

# The locked dependencies: a layer that only changes with the lock.
FROM build AS operator-dependencies
COPY requirements/operator.txt requirements/
RUN pip install --require-hashes --no-deps -r requirements/operator.txt && find /opt/venv -type d -name tests -prune -exec rm -rf {} +

FROM build AS bench-dependencies
COPY requirements/bench.txt requirements/
RUN pip install --require-hashes --no-deps -r requirements/bench.txt && find /opt/venv -type d -name tests -prune -exec rm -rf {} +

# The package itself, apart from its dependencies: a small layer that changes with the code.
FROM build AS package
COPY requirements/build.txt requirements/
RUN pip install --require-hashes --no-deps -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN pip install --no-deps --no-build-isolation --target /opt/package .

FROM ${BASE} AS bench
COPY --from=bench-dependencies /opt/venv /opt/venv
COPY --from=package /opt/package /opt/package
ENV PATH=/opt/package/bin:/opt/venv/bin:$PATH PYTHONPATH=/opt/package PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER 65532:65532
ENTRYPOINT ["vllm-tuning"]
CMD ["bench", "--help"]

FROM ${BASE} AS operator
COPY --from=operator-dependencies /opt/venv /opt/venv
COPY --from=package /opt/package /opt/package
ENV PATH=/opt/package/bin:/opt/venv/bin:$PATH PYTHONPATH=/opt/package PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER 65532:65532
ENTRYPOINT ["vllm-tuning"]
CMD ["operator"]
