# tests of engine/. KV_SMOLLM2_GGUF and KV_GEMMA3_GGUF name the real models, KV_PYTHON a Python with
# xllamacpp; what needs an unset one is skipped.
set(engine_definitions KV_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden"
                       KV_SCRIPTS_DIR="${CMAKE_CURRENT_SOURCE_DIR}/scripts")
kv_tests(engine_test LABELS engine tiny DEPS kv_tiny kv_cachesvc
  FILES engine_gguf_test.cc engine_tokenizer_test.cc engine_kernels_test.cc engine_bands_test.cc
        engine_attention_kinds_test.cc engine_generator_test.cc engine_gemma_test.cc
        engine_generator_parts_test.cc engine_batch_test.cc engine_tiny_model_test.cc
        engine_replaced_test.cc engine_prefill_test.cc engine_hits_test.cc
        engine_cache_calls_test.cc engine_teacher_link_test.cc
  DEFINITIONS ${engine_definitions} KV_CACHESVC_BIN="$<TARGET_FILE:cachesvc>"
              KV_CORPUS_DIR="${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus"
              KV_MODELS_FILE="${CMAKE_SOURCE_DIR}/engine/MODELS.md")
add_dependencies(engine_test cachesvc daemon_with_limits)
kv_fuzz_replay(engine teacher ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/teacher)
if(KV_MODEL_TESTS)
  kv_tests(engine_model_test LABELS engine model DEPS kv_tiny kv_cachesvc
    FILES engine_model_test.cc engine_batch_model_test.cc engine_restore_test.cc
          engine_generator_model_test.cc engine_tiny_model_sweep_test.cc
          engine_hits_model_test.cc
    DEFINITIONS ${engine_definitions})
endif()
