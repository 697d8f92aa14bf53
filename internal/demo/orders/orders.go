package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// An order is a row of the application's own and the message that tells the world about it.
// With -in, each line of the file is taken for one.
type order struct {
	name    string // the message's UUID, which to Watermill is a free text
	topic   string
	payload []byte
}

// readOrders returns those of the file, or a few made up ones if there is no file.
func readOrders(file string) ([]order, error) {
	if file == "" {
		return madeUpOrders(20), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // was only read
	orders, err := parseOrders(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return orders, nil
}

func madeUpOrders(n int) []order {
	orders := make([]order, n)
	for i := range orders {
		name := fmt.Sprintf("order-%d", i+1)
		orders[i] = order{name, "order.placed", fmt.Appendf(nil, `{"order": %q, "total": %d.90, "ship_to": "Zürich"}`, name, 10+i)}
	}
	return orders
}

// parseOrders reads {"topic": …, "payload": …} a line, plain or gzip. The bytes of the payload, as they stand there,
// are the message.
func parseOrders(r io.Reader) ([]order, error) {
	reader := bufio.NewReader(r)
	if magic, err := reader.Peek(2); err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(reader)
		if err != nil {
			return nil, err
		}
		reader = bufio.NewReader(unzipped)
	}
	var orders []order
	for number := 1; ; number++ {
		text, err := reader.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			o, err := parseOrder(text)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			o.name = fmt.Sprintf("line-%d", number)
			orders = append(orders, o)
		}
		if err != nil {
			break
		}
	}
	if len(orders) == 0 {
		return nil, errors.New("there are no messages in it")
	}
	return orders, nil
}

func parseOrder(text []byte) (order, error) {
	var line struct {
		Topic   string          `json:"topic"`
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return order{}, fmt.Errorf(`not an object like {"topic": "a.topic", "payload": …}: %w`, err)
	}
	if line.Topic == "" || line.Payload == nil {
		return order{}, errors.New(`"topic" or "payload" is missing`)
	}
	return order{topic: line.Topic, payload: line.Payload}, nil
}

// declinedOrder is the one that is rolled back: as good as the others.
func declinedOrder(orders []order) order {
	return order{"declined", orders[0].topic, orders[0].payload}
}

// poisonOrder has a message that no handler can read, however often it tries.
func poisonOrder(orders []order) order {
	return order{"poison", orders[0].topic, []byte(`{"order": `)}
}

func topics(orders []order) []string {
	var list []string
	for _, o := range orders {
		list = append(list, o.topic)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
