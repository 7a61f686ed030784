# tests of tools/
set(tools_definitions KV_CACHECTL_BIN="$<TARGET_FILE:cachectl>"
                      KV_CACHESVC_BIN="$<TARGET_FILE:cachesvc>"
                      KV_CACHECTL_PAGE="${CMAKE_SOURCE_DIR}/cachesvc/CACHECTL.md"
                      KV_TOOLS="${CMAKE_SOURCE_DIR}/tools")
kv_tests(tools_test LABELS tools DEPS kv_cachesvc kv_storage kv_quality kv_findings
  nlohmann_json::nlohmann_json
  FILES tools_cachectl_test.cc tools_cachectl_delete_test.cc tools_cachectl_notes_test.cc
        tools_cachectl_quality_test.cc tools_cachectl_why_test.cc
        tools_cachectl_why_store_test.cc
        tools_cachectl_place_test.cc tools_cachectl_kinds_test.cc
        tools_cachectl_findings_test.cc tools_cachectl_json_test.cc
  DEFINITIONS ${tools_definitions})
add_dependencies(tools_test cachectl cachesvc)
if(KV_MODEL_TESTS)
  kv_tests(tools_model_test LABELS tools model DEPS kv_quality nlohmann_json::nlohmann_json
    FILES tools_cachectl_quality_model_test.cc DEFINITIONS ${tools_definitions})
  add_dependencies(tools_model_test cachectl)
endif()

# The Debian package, in a clean system made for it (a minute).
if(KV_MODEL_TESTS)
  add_test(NAME package_check
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/package_check.sh ${CMAKE_BINARY_DIR})
  set_tests_properties(package_check PROPERTIES LABELS package SKIP_RETURN_CODE 77 TIMEOUT 900
    COST 100)
endif()

# README's lines of client code, compiled as they stand and run against a daemon.
set(readme ${CMAKE_SOURCE_DIR}/README.md)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${readme})
file(READ ${readme} client_code)
string(REGEX REPLACE ".*\n```cpp\n" "" client_code "${client_code}")
string(REGEX REPLACE "\n```\n.*" "\n" client_code "${client_code}")
string(REPLACE "\"/run/user/1000/cachesvc.sock\"" "socket_path" client_code "${client_code}")
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/readme/readme_client.inc
     CONTENT "${client_code}" @ONLY)
kv_tests(tools_readme_test LABELS tools DEPS kv_server
  FILES tools_readme_test.cc DEFINITIONS KV_CACHESVC_BIN="$<TARGET_FILE:cachesvc>")
target_include_directories(tools_readme_test PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/readme)
add_dependencies(tools_readme_test cachesvc)

# The checker over this tree, and the checker's own test.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME tidy COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tools/tidy.py)
add_test(NAME tidy_check COMMAND Python3::Interpreter
         ${CMAKE_CURRENT_SOURCE_DIR}/tools_tidy_check.py ${CMAKE_SOURCE_DIR}/tools/tidy.py)
set_tests_properties(tidy tidy_check PROPERTIES LABELS tidy)

# top and tree in panes of tmux, where that is installed.
add_test(NAME tools_terminal_check COMMAND Python3::Interpreter -B
         ${CMAKE_CURRENT_SOURCE_DIR}/tools_terminal_check.py $<TARGET_FILE:cachesvc>
         $<TARGET_FILE:cachectl>)
set_tests_properties(tools_terminal_check PROPERTIES LABELS tools SKIP_RETURN_CODE 77 TIMEOUT 300)

# The list of known features and defects names tests that exist.
add_test(NAME seeds_check COMMAND Python3::Interpreter
         ${CMAKE_CURRENT_SOURCE_DIR}/seeds_check.py ${CMAKE_CURRENT_SOURCE_DIR})
set_tests_properties(seeds_check PROPERTIES LABELS tools)

# Every benchmark that tools/bench names exists.
if(KV_BENCHES)
  add_test(NAME tools_bench_check
           COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools_bench_check.py
                   ${CMAKE_SOURCE_DIR}/tools/bench ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  set_tests_properties(tools_bench_check PROPERTIES LABELS tools)
endif()
# tools/demo runs the programs of build/release, so its check belongs to that build alone.
if(CMAKE_BINARY_DIR STREQUAL "${CMAKE_SOURCE_DIR}/build/release" AND TARGET demo_step)
  foreach(subject smollm2 gemma3 tiny)
    add_test(NAME tools_demo_${subject}
             COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools_demo_check.py
                     ${CMAKE_SOURCE_DIR}/tools/demo $<TARGET_FILE:cachectl> ${subject})
    set_tests_properties(tools_demo_${subject} PROPERTIES LABELS tools-model
                         SKIP_RETURN_CODE 77 TIMEOUT 600 PROCESSORS 3)
  endforeach()
endif()
