# tests of proto/
kv_test(proto_frame_test LABELS proto DEPS kv_proto)
kv_test(proto_message_test LABELS proto DEPS kv_proto)
target_compile_definitions(proto_message_test
                           PRIVATE KV_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden/proto"
                                   KV_CORPUS_DIR="${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus"
                                   KV_PROTOCOL_FILE="${CMAKE_SOURCE_DIR}/proto/PROTOCOL.md")

kv_test(proto_socket_client_test LABELS proto DEPS kv_proto)
kv_test(proto_memory_test LABELS proto DEPS kv_proto)
kv_test(proto_slab_store_test LABELS proto DEPS kv_proto)

# Fuzz targets of a room, replayed over a small corpus and mutations of it.
function(kv_fuzz_replay room name)
  add_executable(fuzz_${name} fuzz/${name}.cc fuzz/replay_main.cc)
  target_link_libraries(fuzz_${name} PRIVATE kv_${room})
  add_dependencies(${room}_tests fuzz_${name})
  add_test(NAME fuzz_${name} COMMAND fuzz_${name} ${ARGN})
  set_tests_properties(fuzz_${name} PROPERTIES LABELS ${room} TIMEOUT 600)
endfunction()
kv_fuzz_replay(proto frame_stream ${CMAKE_CURRENT_SOURCE_DIR}/golden/proto)
kv_fuzz_replay(proto message ${CMAKE_CURRENT_SOURCE_DIR}/golden/proto)
kv_fuzz_replay(proto object_header ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/object)
kv_fuzz_replay(proto profile ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/profile)
kv_fuzz_replay(proto model ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/model)
kv_test(proto_status_test LABELS proto DEPS kv_proto)
kv_test(proto_bytes_test LABELS proto DEPS kv_proto)
kv_test(proto_checksum_test LABELS proto DEPS kv_proto)
kv_test(proto_model_test LABELS proto DEPS kv_proto)
kv_test(proto_profile_test LABELS proto DEPS kv_proto)
kv_test(proto_identity_test LABELS proto DEPS kv_proto)
kv_test(proto_client_test LABELS proto DEPS kv_proto)
kv_test(proto_object_test LABELS proto DEPS kv_proto)
