package main

import (
	"fmt"

	"semel/config"
	"semel/db"
	"semel/engine"
	"semel/outbox"
)

// withEffects gives an engine what models may ask for and where that goes.
func withEffects(o *engine.Options, cfg *config.Config) (err error) {
	if o.Actions, err = cfg.Declared(); err != nil {
		return err
	}
	o.Destinations = map[string]engine.Destination{}
	add := func(name string, t outbox.Target) error {
		sink, err := outbox.New(t)
		if err != nil {
			return fmt.Errorf("destination %s: %w", name, err)
		}
		o.Destinations[name] = engine.Destination{Sink: sink, Target: t}
		return nil
	}
	for _, a := range cfg.Actions {
		if a.Destination.Kind != "" {
			if err := add(a.Name, a.Destination.Target); err != nil {
				return err
			}
		}
		if a.Compensate != nil {
			if err := add(db.CompensationOf(a.Name), a.Compensate.Target); err != nil {
				return err
			}
		}
	}
	if name := cfg.Billing.Deliver; name != "" {
		d, _ := cfg.Destination(name)                                  // the configuration has it: Load looked
		o.ChargeTo, o.Currency = "billing/"+name, cfg.Billing.Currency // no action has such a name
		return add(o.ChargeTo, d.Target.Target)
	}
	return nil
}
