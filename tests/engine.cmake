# tests of engine/. The real model: KV_SMOLLM2_GGUF; a Python with xllamacpp: KV_PYTHON (else skipped)
kv_test(engine_model_test LABELS engine model DEPS kv_engine)
target_compile_definitions(engine_model_test PRIVATE KV_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden")
