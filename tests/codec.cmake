# tests of codec/
kv_tests(codec_test LABELS codec DEPS kv_codec
  FILES codec_golden_test.cc codec_kernels_test.cc codec_codec_test.cc codec_attention_test.cc
        codec_plan_test.cc codec_edge_test.cc codec_finite_test.cc codec_lossless_test.cc
        codec_transform_test.cc codec_streams_test.cc
  DEFINITIONS KV_CODEC_SPEC="${CMAKE_SOURCE_DIR}/codec/TURBOQUANT.md")
kv_fuzz_replay(codec transform ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/transform)
# Codes in the files of a store: codec and storage together.
kv_tests(codec_format_test LABELS codec DEPS kv_codec kv_storage
  FILES codec_format_test.cc
  DEFINITIONS KV_FORMAT_GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden/format"
              KV_FORMAT_FILE="${CMAKE_SOURCE_DIR}/storage/FORMAT.md"
              KV_TRANSFORM_FILE="${CMAKE_SOURCE_DIR}/codec/TRANSFORM.md")

# A reader made of the documents alone reads the same files.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME format_reader_check
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/format_reader_check.py
                 ${CMAKE_SOURCE_DIR})
set_tests_properties(format_reader_check PROPERTIES LABELS codec)
