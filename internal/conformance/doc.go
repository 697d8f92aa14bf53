// Package conformance is the one test suite that every database has to pass: the requirements of the specification,
// each in a test that carries its number (TestOBX021_…), and the traps that queues of this kind fall into (TestTrap_…).
//
// A test gets a fixture for each database there is: an installed outbox in a schema of its own, SQL to look behind it, and
// a check of the invariants when it ends. What a test needs of a server beyond plain SQL it asks for by name
// (fixture.Needs). Where the server, asked by a probe, lacks it, the test is skipped, and the run ends with the list of
// what did not run and why.
package conformance
