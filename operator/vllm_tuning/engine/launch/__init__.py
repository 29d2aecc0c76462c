"""From a container to the words that vLLM's parser sees, and back to the bytes they came from."""
