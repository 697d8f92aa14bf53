package watermillsql

import (
	"github.com/incursa/watermill-outbox/internal/field"
	"github.com/incursa/watermill-outbox/internal/seam"
)

// Config configures both adapters.
type Config struct {
	// Schema is the database schema of the outbox. Defaults to dbo.
	Schema string

	// Table is the name of the outbox's table. Defaults to Outbox.
	Table string

	// BatchSize is the most messages that a subscriber reads at once, 1 to 1,000. Defaults to 100.
	BatchSize int
}

const maxBatchSize = 1000

func (c *Config) setDefaults() { field.Default(&c.BatchSize, 100) }

func (c *Config) validate() error {
	if c.BatchSize < 1 || c.BatchSize > maxBatchSize {
		return field.Bad("Config.BatchSize", "%d is not between 1 and %d", c.BatchSize, maxBatchSize)
	}
	return nil
}

// log returns the log that the config names.
func (c *Config) log() (seam.Log, error) {
	c.setDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return seam.SQLServerLog(c.Schema, c.Table)
}
