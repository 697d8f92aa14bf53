// Package base holds types that the root package exports by alias, and that the packages below the root can use without
// importing it.
package base
