# The simulated engine under the name of the real one: a pod that says `vllm serve MODEL ...` runs `vllm-tuning simulate`.
FROM localhost/vllm-tuning-bench:dev
USER 0
COPY vllm /usr/local/bin/vllm
USER 65532:65532
ENTRYPOINT []
CMD ["vllm", "serve", "simulated"]
