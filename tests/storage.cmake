# tests of storage/
kv_test(storage_block_file_test LABELS storage DEPS kv_storage)
target_compile_definitions(storage_block_file_test
                           PRIVATE KV_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden/storage"
                                   KV_FORMAT_FILE="${CMAKE_SOURCE_DIR}/storage/FORMAT.md")
kv_test(storage_seal_test LABELS storage DEPS kv_storage)
target_compile_definitions(storage_seal_test
                           PRIVATE KV_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden/storage"
                                   KV_CORPUS_DIR="${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus")
kv_fuzz_replay(storage sealed_file ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/sealed)
kv_test(storage_sealed_tier_test LABELS storage DEPS kv_storage)
kv_test(storage_tier_test LABELS storage DEPS kv_storage)
kv_test(storage_read_test LABELS storage DEPS kv_storage)
kv_test(storage_recovery_test LABELS storage DEPS kv_storage SQLite::SQLite3)
target_compile_definitions(storage_recovery_test
                           PRIVATE KV_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden/storage")
kv_test(storage_state_test LABELS storage DEPS kv_storage SQLite::SQLite3)
kv_test(storage_inspect_test LABELS storage DEPS kv_storage)
kv_test(storage_damage_test LABELS storage DEPS kv_storage)
kv_test(storage_fault_test LABELS storage DEPS kv_storage)
kv_test(storage_memory_test LABELS storage DEPS kv_storage SQLite::SQLite3)
kv_test(storage_kill_test LABELS storage DEPS kv_storage)
kv_test(storage_power_test LABELS storage DEPS kv_storage)

# Every test that FORMAT.md names beside a promise exists.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME storage_promises_check
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/storage_promises_check.py
                 ${CMAKE_SOURCE_DIR}/storage/FORMAT.md ${CMAKE_CURRENT_SOURCE_DIR})
set_tests_properties(storage_promises_check PROPERTIES LABELS storage)
