# tests of index/
kv_test(index_prefix_tree_test LABELS index DEPS kv_index)
kv_test(index_restorable_test LABELS index DEPS kv_index)
kv_test(index_eviction_test LABELS index DEPS kv_index)
