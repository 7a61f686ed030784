# tests of codec/
kv_tests(codec_test LABELS codec DEPS kv_codec
  FILES codec_golden_test.cc codec_kernels_test.cc codec_codec_test.cc codec_attention_test.cc
        codec_plan_test.cc codec_edge_test.cc codec_lossless_test.cc
  DEFINITIONS KV_CODEC_SPEC="${CMAKE_SOURCE_DIR}/codec/TURBOQUANT.md")
