package kept

// Connection is what a driver's connection has to be.
type Connection = connection
