// Package base is what both sides of the public API need: the root package names it by alias, and what lies below the root
// uses it without importing the root.
package base
