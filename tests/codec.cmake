# tests of codec/
kv_test(codec_golden_test LABELS codec DEPS kv_codec)
kv_test(codec_kernels_test LABELS codec DEPS kv_codec)
kv_test(codec_plane_test LABELS codec DEPS kv_codec)
kv_test(codec_attention_test LABELS codec DEPS kv_codec)
kv_test(codec_plan_test LABELS codec DEPS kv_codec)
target_compile_definitions(codec_plan_test
                           PRIVATE KV_CODEC_SPEC="${CMAKE_SOURCE_DIR}/codec/TURBOQUANT.md")
kv_test(codec_edge_test LABELS codec DEPS kv_codec)
kv_test(codec_lossless_test LABELS codec DEPS kv_codec)
