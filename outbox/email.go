package outbox

func newEmail(_ Target, wrong *findings) Sink {
	wrong.add("kind", "e-mail is not supported by this version")
	return nil
}
