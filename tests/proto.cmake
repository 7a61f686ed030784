# tests of proto/
