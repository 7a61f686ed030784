# tests of python/: with Debian's Python and its packages (tools/install), against the daemon. They
# prove the client, so a sanitizer's build leaves them out.
if(NOT KV_SANITIZE)
  find_program(KV_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
  add_dependencies(python_tests cachesvc cachectl demo_step)
  set(python_folder ${CMAKE_SOURCE_DIR}/python)
  add_test(NAME python_client COMMAND ${KV_SYSTEM_PYTHON} -B -m pytest
           WORKING_DIRECTORY ${python_folder})
  # By itself where three run at once (tools/test): its time limits are fractions of a second.
  set_tests_properties(python_client PROPERTIES PROCESSORS 3
    ENVIRONMENT "KV_CACHESVC_BIN=$<TARGET_FILE:cachesvc>;PYTHONPATH=.")
  # Types and syntax as of Python 3.9, and the wheel.
  add_test(NAME python_types COMMAND ${KV_SYSTEM_PYTHON} -B -m mypy
           --cache-dir ${CMAKE_CURRENT_BINARY_DIR}/mypy WORKING_DIRECTORY ${python_folder})
  add_test(NAME python_wheel COMMAND ${KV_SYSTEM_PYTHON} -B
           ${CMAKE_CURRENT_SOURCE_DIR}/python_wheel_check.py ${python_folder})
  if(KV_MODEL_TESTS)
    # README's lines for engines, from PyPI.
    add_test(NAME python_readme COMMAND ${KV_SYSTEM_PYTHON} -B
             ${CMAKE_CURRENT_SOURCE_DIR}/python_readme_check.py ${CMAKE_SOURCE_DIR})
    set_tests_properties(python_readme PROPERTIES LABELS package SKIP_RETURN_CODE 77 TIMEOUT 600)
    # Real engines, unmodified, each by itself: tools/install --print-env says where they are. One
    # that is not there is skipped, which python/tests/conftest.py says by 77 (and tools/test says
    # how to have it).
    foreach(engine llama_engine llama_parallel llama_programs transformers teacher mlx vllm_tier
            vllm_lmcache lmcache sglang)
      add_test(NAME python_engines.${engine} COMMAND ${KV_SYSTEM_PYTHON} -B -m pytest -m engines -rs
               tests/test_${engine}.py WORKING_DIRECTORY ${python_folder})
      set_tests_properties(python_engines.${engine} PROPERTIES PROCESSORS 3 LABELS engines
        TIMEOUT 1800 SKIP_RETURN_CODE 77
        ENVIRONMENT "KV_CACHESVC_BIN=$<TARGET_FILE:cachesvc>;PYTHONPATH=.")
    endforeach()
    # llama.cpp's threads wait for each other: on two, beside other work, it takes eight times as
    # long as on one. One other test runs beside it.
    set_tests_properties(python_engines.llama_engine python_engines.llama_parallel
      python_engines.llama_programs PROPERTIES PROCESSORS 2 COST 200 ENVIRONMENT
      "KV_CACHESVC_BIN=$<TARGET_FILE:cachesvc>;PYTHONPATH=.;KV_LLAMA_THREADS=1")
  endif()
  set_tests_properties(python_client python_types python_wheel PROPERTIES
    LABELS python TIMEOUT 300)
endif()
