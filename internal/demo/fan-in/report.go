package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/join"
)

// report writes five sections and assembles those that there are: a section that fails does not stop the others.
func (a *app) report() workflow {
	w := workflow{
		name:     "report",
		start:    a.startReport,
		handlers: map[string]message.NoPublishHandlerFunc{"report.assemble": a.assemble},
		want:     "assembled 4 of 5 sections, without report.section4: there are no figures for it",
	}
	for _, topic := range sections {
		w.handlers[topic] = a.writeSection
	}
	return w
}

var sections = []string{"report.section1", "report.section2", "report.section3", "report.section4", "report.section5"}

func (a *app) startReport(ctx context.Context) error {
	a.Say("report: sends five sections; the assembly follows even if some fail")
	return outbox.InTx(ctx, a.DB, func(ctx context.Context, tx *sql.Tx) error {
		if err := a.begin(ctx, tx, "report"); err != nil {
			return err
		}
		return a.fanOut(ctx, tx,
			join.StartParams{GroupingKey: "report-456", Metadata: `{"type": "report-generation"}`},
			// Without FailIfAnyStepFailed, OnComplete follows when all have ended, however they did.
			join.Wait{OnComplete: join.Continuation{Topic: "report.assemble", Payload: []byte(`{"report": 456}`)}},
			sections...)
	})
}

var errNoFigures = errors.New("there are no figures for it")

func (a *app) writeSection(msg *message.Message) error {
	topic := message.SubscribeTopicFromCtx(msg.Context())
	if topic == "report.section4" {
		a.Say("report: %s fails for good: %v", topic, errNoFigures)
		return outbox.Permanent(errNoFigures)
	}
	a.Say("report: %s is written", topic)
	return nil
}

// assemble asks the join which of its steps have failed, and the outbox why.
func (a *app) assemble(msg *message.Message) error {
	a.Say("report: the join has %s, the report is assembled", msg.Metadata[join.HeaderStatus])
	id, err := join.ParseID(msg.Metadata[join.HeaderJoinID])
	if err != nil {
		return outbox.Permanent(err)
	}
	steps, err := a.joins.Steps(msg.Context(), nil, id, outbox.MessageID{}, 100)
	if err != nil {
		return err
	}
	var failed []outbox.MessageID
	for _, step := range steps {
		if step.Status == join.StepFailed {
			failed = append(failed, step.MessageID)
		}
	}
	records, err := a.queue.Get(msg.Context(), failed...)
	if err != nil {
		return err
	}
	var missing []string
	for _, record := range records {
		missing = append(missing, record.Topic+": "+record.LastError)
	}
	return a.finish(msg, "report", fmt.Sprintf("assembled %d of %d sections, without %s",
		len(steps)-len(failed), len(steps), strings.Join(missing, ", ")))
}
