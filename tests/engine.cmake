# tests of engine/. The real model: KV_SMOLLM2_GGUF; a Python with xllamacpp: KV_PYTHON (else skipped)
foreach(subject gguf tokenizer kernels generator)
  kv_test(engine_${subject}_test LABELS engine tiny DEPS kv_engine)
endforeach()
kv_test(engine_model_test LABELS engine model DEPS kv_engine)
foreach(subject tokenizer model)
  target_compile_definitions(engine_${subject}_test PRIVATE
    KV_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden" KV_SCRIPTS_DIR="${CMAKE_CURRENT_SOURCE_DIR}/scripts")
endforeach()
