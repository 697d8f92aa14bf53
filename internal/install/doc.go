// Package install creates the tables and procedures of an outbox, brings them up to date, and says what is missing.
package install
