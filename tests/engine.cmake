# tests of engine/. KV_SMOLLM2_GGUF and KV_GEMMA3_GGUF name the real models, KV_PYTHON a Python with
# xllamacpp; what needs an unset one is skipped.
kv_test(engine_gguf_test LABELS engine tiny DEPS kv_engine)
kv_test(engine_attention_kinds_test LABELS engine tiny DEPS kv_engine_tiny)
kv_test(engine_tokenizer_test LABELS engine tiny DEPS kv_engine)
kv_test(engine_kernels_test LABELS engine tiny DEPS kv_engine)
kv_test(engine_screen_test LABELS engine tiny DEPS kv_engine)
kv_test(engine_batch_test LABELS engine tiny DEPS kv_engine)
kv_test(engine_generator_test LABELS engine tiny DEPS kv_engine)
kv_test(engine_gemma_test LABELS engine tiny DEPS kv_engine)
kv_test(engine_parts_test LABELS engine tiny DEPS kv_engine kv_cachesvc)
kv_test(engine_model_test LABELS engine model DEPS kv_engine)
kv_test(engine_batch_model_test LABELS engine model DEPS kv_engine kv_cachesvc)
kv_test(engine_restore_test LABELS engine model DEPS kv_engine kv_cachesvc)
kv_test(engine_coded_test LABELS engine model DEPS kv_engine kv_cachesvc)
foreach(subject tokenizer kernels model coded)
  target_compile_definitions(engine_${subject}_test PRIVATE
    KV_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden"
    KV_SCRIPTS_DIR="${CMAKE_CURRENT_SOURCE_DIR}/scripts")
endforeach()
kv_test(engine_tiny_models_test LABELS engine tiny DEPS kv_engine_tiny kv_cachesvc)
kv_test(engine_tiny_sweep_test LABELS engine model DEPS kv_engine_tiny kv_cachesvc)
foreach(subject models sweep)
  target_compile_definitions(engine_tiny_${subject}_test PRIVATE
    KV_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden")
endforeach()
