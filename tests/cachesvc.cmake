# tests of cachesvc/: the core, the tiered cache, the daemon, its socket and its configuration
kv_tests(cachesvc_test LABELS cachesvc DEPS kv_server
  FILES cachesvc_config_test.cc cachesvc_cache_core_test.cc cachesvc_encode_test.cc
        cachesvc_ram_pool_test.cc cachesvc_loop_watch_test.cc cachesvc_pins_test.cc
        cachesvc_plan_test.cc cachesvc_models_whole_test.cc
        cachesvc_coded_model_test.cc
        cachesvc_tiered_cache_test.cc cachesvc_tiered_cache_parts_test.cc
        cachesvc_tiered_cache_pressure_test.cc cachesvc_fetch_reply_test.cc
        cachesvc_ends_whole_test.cc cachesvc_orphans_test.cc
        cachesvc_records_test.cc cachesvc_ack_property_test.cc
        cachesvc_eraser_whole_test.cc cachesvc_eraser_beside_test.cc
        cachesvc_promoter_whole_test.cc cachesvc_recency_whole_test.cc
        cachesvc_index_share_test.cc cachesvc_cache_core_steps_test.cc cachesvc_timer_test.cc
        cachesvc_publications_whole_test.cc
        cachesvc_ram_room_whole_test.cc cachesvc_reservations_whole_test.cc
        cachesvc_puts_whole_test.cc cachesvc_streams_test.cc
        cachesvc_spiller_whole_test.cc cachesvc_ram_checks_whole_test.cc
        cachesvc_scrubber_whole_test.cc
        cachesvc_write_budget_test.cc cachesvc_ssd_lane_whole_test.cc
        cachesvc_reconciler_whole_test.cc
        cachesvc_property_test.cc cachesvc_kill_test.cc
        cachesvc_session_limits_test.cc cachesvc_server_test.cc cachesvc_session_test.cc
        cachesvc_gate_test.cc cachesvc_session_peer_test.cc cachesvc_replies_test.cc
        cachesvc_requests_test.cc cachesvc_opens_whole_test.cc cachesvc_server_memory_test.cc
        cachesvc_log_test.cc
        cachesvc_drainer_test.cc cachesvc_turns_test.cc
        cachesvc_socket_pool_test.cc cachesvc_main_test.cc cachesvc_frame_sender_test.cc
  DEFINITIONS KV_CACHESVC_BIN="$<TARGET_FILE:cachesvc>")
# The daemon of tests that want limits which no setting changes.
kv_program(daemon_with_limits SOURCES support/daemon_with_limits.cc DEPS kv_server)
add_dependencies(cachesvc_test cachesvc daemon_with_limits)
# Clients that map the RAM tier of a real daemon.
kv_tests(cachesvc_mapped_test LABELS cachesvc DEPS kv_server
  FILES cachesvc_mappings_test.cc cachesvc_mapped_kills_test.cc cachesvc_mapped_property_test.cc
        cachesvc_mapping_peers_test.cc
        cachesvc_peer_memory_test.cc
  DEFINITIONS KV_CACHESVC_BIN="$<TARGET_FILE:cachesvc>")
add_dependencies(cachesvc_mapped_test cachesvc daemon_with_limits)
# The RESP port of a real daemon.
kv_tests(cachesvc_resp_test LABELS cachesvc DEPS kv_server
  FILES cachesvc_resp_test.cc
  DEFINITIONS KV_CACHESVC_BIN="$<TARGET_FILE:cachesvc>")
add_dependencies(cachesvc_resp_test cachesvc daemon_with_limits)
# The shared tier over real Redis servers, where they are installed.
kv_tests(cachesvc_remote_test LABELS cachesvc DEPS kv_remote
  FILES cachesvc_remote_parts_test.cc cachesvc_remote_test.cc
        cachesvc_remote_cluster_test.cc cachesvc_remote_nodes_test.cc)
# Real daemons that share one.
kv_tests(cachesvc_remote_daemon_test LABELS cachesvc DEPS kv_server
  FILES cachesvc_remote_profiles_test.cc cachesvc_remote_daemon_test.cc
  DEFINITIONS KV_CACHESVC_BIN="$<TARGET_FILE:cachesvc>")
add_dependencies(cachesvc_remote_daemon_test cachesvc)
# The HTTP port: its parts, a fuzz target of what they read, and a real daemon's.
kv_tests(cachesvc_http_test LABELS cachesvc DEPS kv_server FILES cachesvc_http_test.cc)
if(NOT KV_SANITIZE STREQUAL thread)  # one thread
  add_executable(fuzz_http fuzz/http.cc fuzz/replay_main.cc)
  target_link_libraries(fuzz_http PRIVATE kv_server)
  add_dependencies(cachesvc_tests fuzz_http)
  add_test(NAME fuzz_http COMMAND fuzz_http ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/http)
  set_tests_properties(fuzz_http PROPERTIES LABELS cachesvc TIMEOUT 600 COST 60)
endif()
# Owners of the core one by one (support/cachesvc_owners.h): loop, workers and disk on one thread,
# so TSan would see nothing.
if(NOT KV_SANITIZE STREQUAL thread)
  kv_tests(cachesvc_owners_test LABELS cachesvc DEPS kv_cachesvc
    FILES cachesvc_env_test.cc cachesvc_attached_test.cc cachesvc_holds_test.cc
          cachesvc_demotes_test.cc cachesvc_sweeps_test.cc cachesvc_syncer_test.cc
          cachesvc_ssd_lane_test.cc cachesvc_recency_test.cc
          cachesvc_ram_checks_test.cc cachesvc_models_test.cc
          cachesvc_spiller_test.cc cachesvc_ram_room_test.cc
          cachesvc_promoter_test.cc cachesvc_calls_test.cc cachesvc_levels_test.cc
          cachesvc_reservations_test.cc cachesvc_needs_test.cc cachesvc_puts_test.cc
          cachesvc_commits_test.cc cachesvc_fetches_test.cc cachesvc_hit_reads_test.cc
          cachesvc_open_questions_test.cc
          cachesvc_drain_test.cc cachesvc_opens_test.cc
          cachesvc_warm_start_test.cc cachesvc_compactor_test.cc
          cachesvc_eraser_test.cc cachesvc_erase_targets_test.cc
          cachesvc_scrubber_test.cc
          cachesvc_reconciler_test.cc
          cachesvc_coverage_test.cc cachesvc_row_copies_test.cc
          cachesvc_stats_test.cc cachesvc_shares_test.cc
          cachesvc_object_index_test.cc cachesvc_found_test.cc cachesvc_model_records_test.cc
          cachesvc_write_pace_test.cc cachesvc_publications_test.cc cachesvc_ends_test.cc
          cachesvc_named_ends_test.cc cachesvc_entry_words_test.cc
          cachesvc_expirer_test.cc cachesvc_retains_test.cc cachesvc_why_test.cc
          cachesvc_spill_batch_test.cc cachesvc_disk_lists_test.cc
          cachesvc_spill_writer_test.cc)
endif()
# The table of cases that every client runs (conformance/README.md).
kv_tests(conformance_test LABELS cachesvc DEPS kv_server nlohmann_json::nlohmann_json
  FILES conformance_test.cc
  DEFINITIONS KV_CACHESVC_BIN="$<TARGET_FILE:cachesvc>"
              KV_CONFORMANCE_FILE="${CMAKE_CURRENT_SOURCE_DIR}/conformance/cases.json")
add_dependencies(conformance_test cachesvc)
# A binary of its own: its allocations fail.
kv_tests(cachesvc_no_memory_test LABELS cachesvc DEPS kv_cachesvc FILES cachesvc_no_memory_test.cc)

find_package(Python3 REQUIRED COMPONENTS Interpreter)
# The settings are the documented ones.
add_test(NAME cachesvc_settings_check COMMAND Python3::Interpreter
         ${CMAKE_CURRENT_SOURCE_DIR}/cachesvc_settings_check.py $<TARGET_FILE:cachesvc>
         ${CMAKE_SOURCE_DIR}/cachesvc/OPERATING.md)
set_tests_properties(cachesvc_settings_check PROPERTIES LABELS cachesvc)
# What the HTTP port answers, and the monitoring files beside it; its page in Chromium, where that
# is installed.
add_test(NAME cachesvc_http_check COMMAND Python3::Interpreter -B
         ${CMAKE_CURRENT_SOURCE_DIR}/cachesvc_http_check.py $<TARGET_FILE:cachesvc>
         ${CMAKE_SOURCE_DIR}/cachesvc/daemon/monitoring)
add_test(NAME cachesvc_page_check COMMAND Python3::Interpreter -B
         ${CMAKE_CURRENT_SOURCE_DIR}/cachesvc_page_check.py $<TARGET_FILE:cachesvc>
         ${CMAKE_CURRENT_BINARY_DIR})
set_tests_properties(cachesvc_http_check cachesvc_page_check PROPERTIES LABELS cachesvc
  SKIP_RETURN_CODE 77 TIMEOUT 300)
# The service manager's side: readiness, signs of life, a passed socket, SIGHUP.
add_test(NAME cachesvc_supervisor_check COMMAND Python3::Interpreter
         ${CMAKE_CURRENT_SOURCE_DIR}/cachesvc_supervisor_check.py $<TARGET_FILE:cachesvc>)
set_tests_properties(cachesvc_supervisor_check PROPERTIES LABELS cachesvc TIMEOUT 120)
# The systemd unit, where systemd-analyze is installed.
add_test(NAME cachesvc_unit_check COMMAND Python3::Interpreter
         ${CMAKE_CURRENT_SOURCE_DIR}/cachesvc_unit_check.py
         ${CMAKE_SOURCE_DIR}/cachesvc/daemon/cachesvc.service $<TARGET_FILE:cachesvc>)
set_tests_properties(cachesvc_unit_check PROPERTIES LABELS cachesvc SKIP_RETURN_CODE 77 TIMEOUT 120)
