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
kv_test(cachesvc_orphans_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_spill_test LABELS cachesvc DEPS kv_cachesvc)
kv_test(cachesvc_media_test LABELS cachesvc DEPS kv_cachesvc)
