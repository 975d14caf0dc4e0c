package db

// effectInvariants are about what follows from answers: decisions, the outbox and
// what came back.
var effectInvariants = []Invariant{
	{"I26", "a refund or an adjustment is of a charge, leaves no less than nothing, and somebody is named for it",
		`SELECT l.id FROM ledger l WHERE l.kind IN ('adjustment', 'refund') AND (
		 NOT EXISTS (SELECT 1 FROM ledger c WHERE c.request_id = l.request_id AND c.kind = 'charge' AND c.tx < l.tx)
		 OR (SELECT sum(s.micros) FROM ledger s WHERE s.request_id = l.request_id AND s.kind <> 'waste') < 0
		 OR NOT EXISTS (SELECT 1 FROM audit a WHERE a.tx = l.tx AND a.action = l.kind AND a.object = 'request:' || l.request_id))`},
	{"I29", "one decision a tool call, by position, written with the snapshot that it follows from",
		`SELECT s.request_id FROM snapshots s LEFT JOIN decisions d ON d.request_id = s.request_id
		 WHERE s.declarations_id IS NOT NULL OR d.position IS NOT NULL GROUP BY s.request_id
		 HAVING count(d.position) <> CASE WHEN s.finish IN ('stop', 'tool') THEN json_array_length(s.tool_calls) ELSE 0 END
		 OR (count(d.position) > 0 AND (s.declarations_id IS NULL OR min(d.position) <> 0 OR max(d.position) <> count(d.position) - 1 OR min(d.tx) <> s.tx OR max(d.tx) <> s.tx))
		 UNION ALL SELECT request_id FROM decisions d WHERE NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.request_id = d.request_id)`},
	{"I30", "what leaves was decided, by a rule or a person, in the transaction that wrote it; and all that was decided so leaves",
		`SELECT d.request_id, d.position FROM decisions d LEFT JOIN verdicts v ON v.request_id = d.request_id AND v.position = d.position
		 LEFT JOIN outbox o ON o.request_id = d.request_id AND o.kind = 'effect' AND o.position = d.position
		 WHERE (o.id IS NOT NULL) <> (d.verdict = 'auto' OR v.verdict IS 'approve')
		 OR (o.id IS NOT NULL AND (o.webhook_id <> d.webhook_id OR o.destination <> d.action OR o.tx <> coalesce(v.tx, d.tx)))
		 UNION ALL SELECT o.request_id, o.position FROM outbox o WHERE o.kind <> 'charge' AND NOT EXISTS (
		 SELECT 1 FROM decisions d WHERE d.request_id = o.request_id AND d.position = o.position)`},
	{"I31", "a decision still has its digest",
		`SELECT request_id, position FROM decisions WHERE digest <> digest(CAST(action AS BLOB), CAST(arguments AS BLOB))`},
	{"I32", "what leaves has the arguments that were decided on, and is about its request",
		`SELECT o.id FROM outbox o JOIN requests r ON r.id = o.request_id LEFT JOIN decisions d ON d.request_id = o.request_id AND d.position = o.position AND o.kind <> 'charge'
		 WHERE json_extract(o.payload, '$.data.requestId') IS NOT r.request_id
		 OR (o.kind <> 'charge' AND json_extract(o.payload, '$.data.arguments') IS NOT json(CASE d.arguments WHEN '' THEN '{}' ELSE d.arguments END))`},
	{"I33", "deliveries are numbered 1 to the attempt of what they deliver, and only the last may be open; it is while it is delivered",
		`SELECT o.id FROM outbox o LEFT JOIN deliveries y ON y.outbox_id = o.id GROUP BY o.id
		 HAVING count(y.n) <> o.attempt OR (count(y.n) > 0 AND (min(y.n) <> 1 OR max(y.n) <> o.attempt))
		 OR count(*) FILTER (WHERE y.n IS NOT NULL AND y.outcome IS NULL AND y.n <> o.attempt) > 0
		 OR (o.state = 'delivering' AND count(*) FILTER (WHERE y.n = o.attempt AND y.outcome IS NULL) = 0)`},
	{"I35", "what is delivered was accepted by its receiver, or its receiver said so; what awaits a callback was accepted",
		`SELECT o.id FROM outbox o LEFT JOIN callbacks b ON b.outbox_id = o.id AND b.decision = 'first'
		 WHERE (o.state = 'delivered' AND b.ok IS NOT 1 AND (o.awaits = 1 OR NOT EXISTS (SELECT 1 FROM deliveries y WHERE y.outbox_id = o.id AND y.outcome = 'ok')))
		 OR (o.state = 'awaiting' AND (b.n IS NOT NULL OR NOT EXISTS (SELECT 1 FROM deliveries y WHERE y.outbox_id = o.id AND y.n = o.attempt AND y.outcome = 'ok')))
		 OR (o.state = 'refused' AND b.ok IS NOT 0)`},
	{"I36", "a request is committed exactly when everything that follows from its answer is settled",
		`SELECT r.id FROM requests r WHERE r.state IN ('acknowledged', 'committed') AND (r.state = 'committed') = (
		 EXISTS (SELECT 1 FROM outbox o WHERE o.request_id = r.id AND o.kind <> 'compensation' AND o.state NOT IN ('delivered', 'abandoned', 'compensated'))
		 OR EXISTS (SELECT 1 FROM decisions d WHERE d.request_id = r.id AND d.verdict = 'ask' AND NOT EXISTS (
			SELECT 1 FROM verdicts v WHERE v.request_id = d.request_id AND v.position = d.position)))
		 UNION ALL SELECT o.request_id FROM outbox o JOIN requests r ON r.id = o.request_id WHERE r.state NOT IN ('acknowledged', 'committed')`},
	{"I37", "an effect has a compensation exactly when it is or was being undone, where that is declared; undone means that was delivered",
		`SELECT o.id FROM outbox o LEFT JOIN outbox c ON c.request_id = o.request_id AND c.kind = 'compensation' AND c.position = o.position
		 WHERE o.kind = 'effect' AND ((o.state IN ('compensating', 'compensated') AND c.id IS NULL)
		 OR (c.id IS NOT NULL AND (o.compensates = 0 OR o.state NOT IN ('compensating', 'compensated', 'abandoned')))
		 OR (o.state = 'compensated') <> (c.state IS 'delivered') OR (o.state = 'abandoned' AND c.id IS NOT NULL AND c.state <> 'abandoned'))
		 UNION ALL SELECT c.id FROM outbox c WHERE c.kind = 'compensation' AND NOT EXISTS (
		 SELECT 1 FROM outbox o WHERE o.request_id = c.request_id AND o.kind = 'effect' AND o.position = c.position)`},
	{"I39", "a verdict is on a decision that asks, on what was shown, and later",
		`SELECT v.request_id, v.position FROM verdicts v LEFT JOIN decisions d ON d.request_id = v.request_id AND d.position = v.position
		 WHERE d.verdict IS NOT 'ask' OR v.digest <> d.digest OR v.tx <= d.tx`},
	{"I40", "callbacks are numbered, the first verdict is one, and the others say what they are of it",
		`SELECT b.outbox_id, b.n FROM callbacks b JOIN outbox o ON o.id = b.outbox_id LEFT JOIN callbacks f ON f.outbox_id = b.outbox_id AND f.decision = 'first'
		 WHERE o.kind <> 'effect' OR (b.decision = 'duplicate' AND b.ok IS NOT f.ok) OR (b.decision = 'contradiction' AND b.ok IS f.ok) OR (b.decision IN ('duplicate', 'contradiction') AND (f.n IS NULL OR f.n > b.n))
		 UNION ALL SELECT outbox_id, max(n) FROM callbacks GROUP BY outbox_id HAVING min(n) <> 1 OR max(n) <> count(*)`},
	{"I47", "what was sent again by hand is in the audit log",
		`SELECT y.outbox_id, y.n FROM deliveries y JOIN outbox o ON o.id = y.outbox_id WHERE y.reason = 'redrive' GROUP BY y.outbox_id
		 HAVING count(*) > (SELECT count(*) FROM audit a WHERE a.action = 'redrive' AND a.object = o.webhook_id)`},
	{"I89", "what leaves is what was written to leave",
		`SELECT id FROM outbox WHERE sha256 IS NOT digest(CAST(webhook_id AS BLOB), CAST(destination AS BLOB), CAST(payload AS BLOB))`},
	{"I53", "what is being delivered has a lease, and nothing else has",
		`SELECT id FROM outbox WHERE (state = 'delivering') <> (owner IS NOT NULL) OR (owner IS NULL) <> (lease_until IS NULL)
		 OR (state = 'pending') <> (next_at IS NOT NULL) OR (state = 'awaiting') <> (due_at IS NOT NULL)`},
}
