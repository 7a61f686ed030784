# tests of memory/
kv_tests(memory_test LABELS memory DEPS kv_memory FILES memory_slab_store_test.cc)
kv_tests(memory_segment_test LABELS memory DEPS kv_memory FILES memory_segment_test.cc)
# A binary of its own: its allocations fail.
kv_tests(memory_failing_test LABELS memory DEPS kv_memory FILES memory_failing_test.cc)
