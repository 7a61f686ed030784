# tests of memory/
kv_tests(memory_test LABELS memory DEPS kv_memory
  FILES memory_slab_store_test.cc)
