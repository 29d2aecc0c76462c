module vllm-tuning-operator/hack/cluster/pause

go 1.26.0
