// Package engine runs operations: files of the schema with one JSON argument and one result each. It neither knows nor cares
// what they do. It runs them in the caller's transaction, under a savepoint if they are several statements, or in one of its
// own, which it repeats after a lost conflict.
package engine
