package schema

// Edition counts the released editions of the SQL in this package. Raise it in each release that changes any of it: Migrate
// leaves a database alone that a library of a higher edition has migrated.
const Edition = 1
