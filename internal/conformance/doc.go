// Package conformance is the one test suite that every database has to pass: the requirements of the specification,
// each in a test that carries its number (TestOBX021_…), and the traps that queues of this kind fall into (TestTrap_…).
// Each concern has a package of its own here; what their tests share is in package suite.
package conformance
