# tests of storage/; under TSan those with several threads
set(storage_files storage_ssd_tier_test.cc storage_beside_test.cc)
if(NOT KV_SANITIZE STREQUAL thread)
  set(storage_files
    storage_block_file_test.cc storage_sealed_file_test.cc storage_object_reader_test.cc
    storage_inspect_test.cc storage_kept_state_test.cc storage_object_note_test.cc
    storage_ssd_tier_test.cc storage_store_dir_test.cc storage_ssd_tier_sealed_test.cc
    storage_recovery_test.cc storage_beside_test.cc storage_damage_test.cc
    storage_fault_test.cc storage_kill_test.cc storage_power_test.cc)
endif()
kv_tests(storage_test LABELS storage DEPS kv_storage SQLite::SQLite3 FILES ${storage_files}
  DEFINITIONS KV_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden/storage"
              KV_CORPUS_DIR="${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus"
              KV_FORMAT_FILE="${CMAKE_SOURCE_DIR}/storage/FORMAT.md")
# A binary of its own: its allocations fail.
kv_tests(storage_memory_test LABELS storage DEPS kv_storage SQLite::SQLite3
  FILES storage_memory_test.cc)
kv_fuzz_replay(storage sealed_file ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/sealed)

# Every test that FORMAT.md names beside a promise exists.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME storage_promises_check
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/storage_promises_check.py
                 ${CMAKE_SOURCE_DIR}/storage/FORMAT.md ${CMAKE_CURRENT_SOURCE_DIR})
set_tests_properties(storage_promises_check PROPERTIES LABELS storage)
