package schema

// Edition counts the released editions of the SQL in this package. Raise it in each release that changes any SQL: Migrate
// does not touch a database that a library of a higher edition has migrated.
const Edition = 1
