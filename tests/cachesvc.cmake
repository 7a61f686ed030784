# cachesvc: the core and the tiered cache
kv_test(cachesvc_core_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_tiered_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_kill_test LABELS cachesvc DEPS kv_proto kv_storage)
target_compile_definitions(cachesvc_kill_test PRIVATE KV_CACHESVC_BIN="$<TARGET_FILE:cachesvc>")
add_dependencies(cachesvc_kill_test cachesvc)

# the daemon, its socket and its configuration
kv_test(cachesvc_config_test LABELS cachesvc DEPS kv_server)
kv_test(cachesvc_server_test LABELS cachesvc DEPS kv_cachesvc)
target_compile_definitions(cachesvc_server_test PRIVATE KV_CACHESVC_BIN="$<TARGET_FILE:cachesvc>")
add_dependencies(cachesvc_server_test cachesvc)
kv_test(cachesvc_tiered_parts_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_tiered_pressure_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_property_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_ends_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_recover_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_disk_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_budget_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_orphans_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_models_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_spill_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_media_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_reservation_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_input_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_clear_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_room_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_limits_test LABELS cachesvc DEPS kv_cachesvc)
target_compile_definitions(cachesvc_limits_test PRIVATE KV_CACHESVC_BIN="$<TARGET_FILE:cachesvc>")
add_dependencies(cachesvc_limits_test cachesvc)
kv_test(cachesvc_verify_test LABELS cachesvc DEPS kv_cachesvc)

# The systemd unit, where systemd-analyze is installed.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME cachesvc_unit_check COMMAND Python3::Interpreter
         ${CMAKE_CURRENT_SOURCE_DIR}/cachesvc_unit_check.py
         ${CMAKE_SOURCE_DIR}/cachesvc/cachesvc.service $<TARGET_FILE:cachesvc>)
set_tests_properties(cachesvc_unit_check PROPERTIES LABELS cachesvc SKIP_RETURN_CODE 77 TIMEOUT 120)
