// A source for the target that owns the parsed headers.
