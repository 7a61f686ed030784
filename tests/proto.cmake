# tests of proto/; under TSan those of the clients, whose threads are several
set(proto_files proto_client_test.cc proto_socket_client_test.cc proto_segment_link_test.cc)
if(NOT KV_SANITIZE STREQUAL thread)
  set(proto_files
    proto_status_test.cc proto_bytes_test.cc proto_checksum_test.cc proto_model_test.cc
    proto_profile_test.cc proto_identity_test.cc proto_object_test.cc proto_frame_test.cc
    proto_message_test.cc proto_selection_test.cc ${proto_files} proto_resp_test.cc
    proto_resp_reply_test.cc proto_keyed_test.cc proto_entry_words_test.cc)
endif()
kv_tests(proto_test LABELS proto DEPS kv_proto FILES ${proto_files}
  DEFINITIONS KV_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden/proto"
              KV_CORPUS_DIR="${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus"
              KV_PROTOCOL_FILE="${CMAKE_SOURCE_DIR}/proto/PROTOCOL.md"
              KV_EXAMPLES_FILE="${CMAKE_SOURCE_DIR}/proto/EXAMPLES.md")

# Fuzz targets of a room, replayed over a small corpus and mutations of it, on one thread.
function(kv_fuzz_replay room name)
  if(KV_SANITIZE STREQUAL thread)
    return()
  endif()
  add_executable(fuzz_${name} fuzz/${name}.cc fuzz/replay_main.cc)
  target_link_libraries(fuzz_${name} PRIVATE kv_${room})
  add_dependencies(${room}_tests fuzz_${name})
  add_test(NAME fuzz_${name} COMMAND fuzz_${name} ${ARGN})
  set_tests_properties(fuzz_${name} PROPERTIES LABELS ${room} TIMEOUT 600 COST 60)  # long: first
endfunction()
kv_fuzz_replay(proto frame_stream ${CMAKE_CURRENT_SOURCE_DIR}/golden/proto)
kv_fuzz_replay(proto message ${CMAKE_CURRENT_SOURCE_DIR}/golden/proto)
kv_fuzz_replay(proto segments ${CMAKE_CURRENT_SOURCE_DIR}/golden/proto)
kv_fuzz_replay(proto object_header ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/object)
kv_fuzz_replay(proto resp ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/resp)
kv_fuzz_replay(proto resp_reply ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/resp_reply)
kv_fuzz_replay(proto profile ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/profile)
kv_fuzz_replay(proto model ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/model)
