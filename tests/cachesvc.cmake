# tests of cachesvc/: the core, the tiered cache, the daemon, its socket and its configuration
kv_tests(cachesvc_test LABELS cachesvc DEPS kv_server
  FILES cachesvc_config_test.cc cachesvc_core_test.cc cachesvc_input_test.cc
        cachesvc_media_test.cc cachesvc_models_test.cc
        cachesvc_model_bytes_test.cc
        cachesvc_tiered_test.cc cachesvc_tiered_parts_test.cc cachesvc_tiered_pressure_test.cc
        cachesvc_ends_test.cc cachesvc_orphans_test.cc
        cachesvc_records_test.cc cachesvc_ack_property_test.cc
        cachesvc_clear_test.cc cachesvc_erase_test.cc
        cachesvc_index_share_test.cc cachesvc_loop_test.cc cachesvc_loop_parts_test.cc
        cachesvc_room_test.cc cachesvc_reservation_test.cc cachesvc_put_test.cc
        cachesvc_spill_test.cc cachesvc_verify_test.cc
        cachesvc_budget_test.cc cachesvc_disk_test.cc cachesvc_recover_test.cc
        cachesvc_property_test.cc cachesvc_kill_test.cc
        cachesvc_limits_test.cc cachesvc_server_test.cc
        cachesvc_served_test.cc cachesvc_resident_test.cc cachesvc_log_test.cc
        cachesvc_signal_test.cc cachesvc_pool_test.cc cachesvc_start_test.cc
  DEFINITIONS KV_CACHESVC_BIN="$<TARGET_FILE:cachesvc>")
add_dependencies(cachesvc_test cachesvc)
# Binaries of their own: their allocations fail.
kv_tests(cachesvc_memory_test LABELS cachesvc DEPS kv_cachesvc FILES cachesvc_memory_test.cc)
kv_tests(cachesvc_server_memory_test LABELS cachesvc DEPS kv_server
  FILES cachesvc_server_memory_test.cc)

# The systemd unit, where systemd-analyze is installed.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME cachesvc_unit_check COMMAND Python3::Interpreter
         ${CMAKE_CURRENT_SOURCE_DIR}/cachesvc_unit_check.py
         ${CMAKE_SOURCE_DIR}/cachesvc/daemon/cachesvc.service $<TARGET_FILE:cachesvc>)
set_tests_properties(cachesvc_unit_check PROPERTIES LABELS cachesvc SKIP_RETURN_CODE 77 TIMEOUT 120)
