# tests of index/
kv_tests(index_test LABELS index DEPS kv_index
  FILES index_prefix_tree_test.cc index_token_run_test.cc index_token_chunks_test.cc
        index_restorable_test.cc index_eviction_test.cc index_sharded_map_test.cc)
